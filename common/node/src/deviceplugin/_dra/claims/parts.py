"""Parts that are made for claims, and removed after them."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.claims.devices import Located, Locator
from deviceplugin._dra.claims.locks import HardwareCalls
from deviceplugin._dra.claims.record import Record, RecordedDevice
from deviceplugin._inventory.validation import device_problem, identity_problem, shown
from deviceplugin._platform.hooks import reason_of
from deviceplugin._telemetry.metrics import FAILED, OK, Metrics
from deviceplugin.errors import AllocationError, DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device, Part
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

MAKE, REMOVE = "make", "remove"
_METHODS: Final = {"part made": MAKE, "part removed": REMOVE}
_STILL: Final = "not known yet: devices are still being discovered"


def made(records: Iterable[Record], boot: str) -> Mapping[Key, str]:
    """Return the parts that claims have, each with its identity: none survives a reboot."""
    return {
        key: part.identity if record.boot == boot else ""
        for record in records
        for key, part in record.parts.items()
    }


def intended(
    devices: Sequence[RecordedDevice], before: Record | None, boot: str
) -> Sequence[RecordedDevice]:
    """Return ``devices`` for the record before their parts are made.

    A part that the claim has had since this ``boot`` keeps its identity.
    """
    known = {} if before is None else made([before], boot)
    return [
        replace(one, part=replace(one.part, identity=known.get(one.key, ""))) if one.part else one
        for one in devices
    ]


@dataclass(frozen=True)
class Makers:
    """The plugins that make parts; none by default."""

    set: Callable[[Mapping[Key, str]], None] = lambda _made: None
    """Has plugins know the parts that claims have now, each with its identity."""
    maker: Callable[[str], Plugin | None] = lambda _resource: None
    """Returns the plugin that makes parts of a resource."""


NOBODY: Final = Makers()


@dataclass(eq=False, repr=False)
class PartMaker:
    """Calls plugins to make and remove parts. Thread-safe."""

    driver: str
    locator: Locator
    calls: HardwareCalls
    metrics: Metrics
    made: Callable[[], Mapping[Key, str]]
    """Returns the parts that claims have, each with its identity."""
    makers: Makers

    def __post_init__(self) -> None:
        self._problems = Problems(log)
        self._changing = threading.Lock()

    def note(self, *records: Record | None) -> None:
        """Report the parts that claims have now, if any of ``records`` had or has some."""
        if not any(one is not None and one.parts for one in records):
            return
        with self._changing:  # so that what is known last is what was read last
            self.makers.set(self.made())

    def make(
        self,
        claim: Claim,
        found: Sequence[Located],
        left: Callable[[], float],
        begun: dict[Key, Part],
    ) -> Sequence[Located]:
        """Return ``found`` with parts as they were made; DevicePluginError if one cannot be.

        What may have to be removed after an error is in ``begun``. To administrators, parts are
        given that others have: no part is made for them.
        """
        return [
            replace(one, device=self._made(claim, one, left, begun))
            if one.device.part is not None and one.device.part.on_demand
            else one
            for one in found
        ]

    def _made(
        self, claim: Claim, one: Located, left: Callable[[], float], begun: dict[Key, Part]
    ) -> Device:
        part, resource, key = one.device, one.resource, (one.resource.name, one.device.id)
        assert part.part is not None
        if one.result.admin:
            if not self.made().get(key):
                raise AllocationError(f"{part.id} is not made: that is not done for an admin")
            return part

        intent = replace(part.part, identity="")

        def make() -> Device:
            begun[key] = intent
            try:
                found = self._call(MAKE, resource.plugin, key[0], part, left, part)
            except AllocationError:  # nothing is left of it, or it has not begun
                del begun[key]
                raise
            made = _checked(found, part, resource.name)
            begun[key] = made.part or intent
            return made

        return self._reported("part made", "part not made", claim, part, resource.name, make)

    def unmake(self, claim: Claim, parts: Mapping[Key, Part], left: Callable[[], float]) -> None:
        """Remove ``parts`` of ``claim``; after all, DevicePluginError if one may still be there."""
        failures = []
        for (name, device_id), part in parts.items():
            try:
                self._unmake(claim, name, Device(device_id, resource=name, part=part), left)
            except DevicePluginError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _unmake(self, claim: Claim, name: str, gone: Device, left: Callable[[], float]) -> None:
        resource, plugin = self.locator.resource(name), self.makers.maker(name)
        if resource is None and not self.locator.discovered():
            raise AllocationError(f"{gone.id} is {_STILL}")
        if plugin is None:
            # To wait for a plugin that can would be to wait for ever.
            fields = {"claim": str(claim), "resource": name, "device": gone.id}
            error = "no plugin makes such parts any more: remove what is left of it"
            log.warning("part not removed", extra={**fields, "error": error})
            return
        # Hardware that does not answer may be in no resource: its plugin knows what is left of it.
        known = {} if resource is None else resource.devices
        part = known.get(gone.id, Device(gone.id, resource=name))
        assert gone.part is not None
        identity = gone.part.identity

        def remove() -> Device:
            self._call(REMOVE, plugin, name, gone, left, part, identity)
            return gone

        self._reported("part removed", "part not removed", claim, gone, name, remove)

    def _reported(
        self,
        done: str,
        failed: str,
        claim: Claim,
        part: Device,
        resource: str,
        do: Callable[[], Device],
    ) -> Device:
        """Return what ``do`` returns, and log and count whether it failed."""
        fields = {"claim": str(claim), "resource": resource, "device": part.id}
        method = _METHODS[done]
        what = f"{method} {resource} {part.id}"
        try:
            found = do()
        except DevicePluginError as error:
            self.metrics.part_calls.labels(self.driver, method, FAILED).inc()
            reason = reason_of(error)
            if self._problems.say(what, failed, cause=error.__cause__, **fields, error=reason):
                self.metrics.events.add(
                    failed, resource=resource, device=part.id, detail=f"{claim}: {reason}"
                )
            raise
        self._problems.over(what)
        self.metrics.part_calls.labels(self.driver, method, OK).inc()
        # What is left of an attempt is removed after each, and that is no news.
        if identity := found.part.identity if found.part else "":
            self.metrics.events.add(done, resource=resource, device=part.id, detail=str(claim))
            log.info(done, extra={**fields, "identity": identity})
        return found

    def _call(
        self,
        method: str,
        plugin: Plugin,
        resource: str,
        part: Device,
        left: Callable[[], float],
        *args: Any,
    ) -> Any:
        makes = method == MAKE
        hook: Callable[..., Any] = plugin.make_part if makes else plugin.unmake_part
        seconds = min(left(), plugin.part_timeout)
        if seconds <= 0:
            raise AllocationError("no time is left in this call for its hooks")
        assert part.part is not None
        name = "make_part" if makes else "unmake_part"
        hardware = f"{resource} {part.part.of.name}"
        return self.calls.call(hardware, name, hook, *args, seconds=seconds)


def _checked(found: object, part: Device, resource: str) -> Device:
    """Return the device that make_part() returned for ``part``; AllocationError if it is wrong."""
    problem = device_problem(found) if isinstance(found, Device) else f"{shown(found)} is no Device"
    if not problem and isinstance(found, Device) and part.part is not None:
        identity = found.part.identity if found.part else None
        if found.id != part.id or found.resource not in {"", resource}:
            problem = f"{found.id} of {found.resource or resource} instead of {part.id}"
        elif wrong := identity_problem(identity):
            problem = f"its identity {shown(identity)} {wrong}"
        else:  # what it takes was decided before
            return replace(found, part=replace(part.part, identity=identity or ""))
    raise AllocationError(f"make_part() returned what cannot be used: {problem}")
