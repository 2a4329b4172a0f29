"""What a claim gets: the plugins' allocations for its requests, as CDI devices."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from deviceplugin._dra.claims.devices import Located
from deviceplugin._dra.claims.parameters import Parameters, Part
from deviceplugin._dra.claims.record import RecordedDevice
from deviceplugin._inventory.allocating import allocation_of, hook_of
from deviceplugin._inventory.published import Resource
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.hooks import HooksByResource
from deviceplugin.errors import AllocationError
from deviceplugin.kit import cdi
from deviceplugin.kit.log import Problems
from deviceplugin.model import Allocation, Counters, Device, Mount
from deviceplugin.model import Part as DevicePart
from deviceplugin.plugin import overrides

log = logging.getLogger(__name__)

TIMEOUT: Final = 10.0
"""Most seconds that a hook may take. A pod waits, and other claims of its call wait too."""
_ACCESS = ("ro", "rw")

_NOTHING: Final[Sequence[str]] = ()


def limit(left: float) -> float:
    """Return how many seconds a hook may take; AllocationError if none of the call are ``left``."""
    if left <= 0:
        raise AllocationError("no time is left in this call for its hooks")
    return min(left, TIMEOUT)


class PluginCalls:
    """Calls hooks of plugins, for at most ``seconds`` each; raises as `Hooks.call`. Thread-safe."""

    def __init__(self) -> None:
        self._hooks = HooksByResource()
        self.close = self._hooks.close
        """Stops waiting for hooks: calls under way and later ones raise at once."""

    def pre_start(self, resource: Resource, devices: Sequence[Device], seconds: float) -> None:
        """Prepare ``devices`` for a container, if the plugin wants that."""
        plugin = resource.plugin
        if overrides(plugin, "pre_start"):
            self._hooks[resource.name].call("pre_start", plugin.pre_start, devices, timeout=seconds)

    def allocate(
        self, resource: Resource, devices: Sequence[Device], parameters: object, seconds: float
    ) -> Allocation:
        """Return what a container that is given ``devices`` gets; see `allocation_of`."""
        plugin, hooks = resource.plugin, self._hooks[resource.name]
        arguments = (plugin, devices, parameters)
        return hooks.call(hook_of(plugin), allocation_of, *arguments, timeout=seconds)

    def released(self, resource: Resource, devices: Sequence[Device], seconds: float) -> bool:
        """Clean up ``devices``, if the plugin wants that; return whether it does."""
        plugin = resource.plugin
        if not overrides(plugin, "released"):
            return False
        self._hooks[resource.name].call("released", plugin.released, devices, timeout=seconds)
        return True


def document_of(kind: str, devices: Mapping[str, cdi.Edits]) -> dict[str, Any] | None:
    """Return the specification of ``devices``; None without any, ValueError if it is not valid."""
    if not devices:
        return None
    document = cdi.Specification(kind, devices).document()
    for device in document["devices"]:
        for mount in device["containerEdits"].get("mounts", ()):
            mount["options"] = _options(mount["options"])
    return document


def _options(options: list[str]) -> list[str]:
    # A mount that a device plugin answers has only these: what works there works here too.
    return [*(one for one in options if one in _ACCESS), "rbind", "rprivate"]


def unanswered(found: Sequence[Located]) -> Sequence[RecordedDevice]:
    """Return ``found`` for the record of a claim that is not prepared yet."""
    return [_recorded(one, _NOTHING) for one in found]


class Asking:
    """Asks plugins. ``kind`` is that of the CDI devices. Thread-safe.

    ``check`` is `HeldHardware.check_nodes`.
    """

    def __init__(self, kind: str, calls: PluginCalls, check: Callable[..., None]) -> None:
        self._kind = kind
        self._calls = calls
        self._check = check
        self._problems = Problems(log)

    def ask(
        self,
        uid: str,
        found: Sequence[Located],
        parameters: Mapping[Part, Parameters],
        left: Callable[[], float],
        mounts: Mapping[str, Mount],
    ) -> tuple[Sequence[RecordedDevice], Mapping[str, Any] | None]:
        """Return what the claim ``uid`` gets for the devices ``found`` with ``parameters``.

        The devices of a request are allocated together, as those of a container are. Its CDI
        device has the same name whenever this is called, and also what ``mounts`` has for it.
        ``left`` returns the seconds that are left for all. Its devices get their CDI names, of
        which the document is the specification. DevicePluginError if a hook refused, or if no
        runtime would take the result.
        """
        edits: dict[str, cdi.Edits] = {}
        names: dict[int, Sequence[str]] = {}
        for suffix, group in _groups(found):
            try:
                allocation = self._allocate(group, parameters, left)
            except AllocationError as error:
                error.resource = error.resource or group[0].resource.name
                raise
            request = group[0].result.request
            name = f"{uid}-{request}{suffix}"
            # Annotations have no way through CDI.
            more = [mounts[request]] if request in mounts and not suffix else []
            own = cdi.Edits(allocation.envs, allocation.nodes, [*allocation.mounts, *more])
            if own:
                edits[name] = own
            # One device of the group has the names: the kubelet hides others with the same names.
            given = [f"{self._kind}={name}"] if own else []
            names[id(group[0])] = (*given, *allocation.cdi_names)
        self._warn_of_overwritten(found, edits.values())
        try:
            document = document_of(self._kind, edits)
        except ValueError as error:
            text = str(error).replace("\n", "; ")
            raise AllocationError(f"no runtime would accept its CDI file: {text}") from error
        return [_recorded(one, names.get(id(one), _NOTHING)) for one in found], document

    def _warn_of_overwritten(self, found: Sequence[Located], edits: Collection[cdi.Edits]) -> None:
        """Log the variables with several values: a container of all requests gets one of these."""
        values: dict[str, set[str]] = {}
        for name, value in (one for each in edits for one in each.env.items()):
            values.setdefault(name, set()).add(value)
        if several := sorted(name for name, each in values.items() if len(each) > 1):
            resources = ", ".join(sorted({one.resource.name for one in found}))
            self._problems.say(
                "variables",
                "requests set different values of a variable",
                resource=resources,
                variables=", ".join(several),
            )

    def _allocate(
        self,
        group: Sequence[Located],
        parameters: Mapping[Part, Parameters],
        left: Callable[[], float],
    ) -> Allocation:
        resource = group[0].resource
        given = parameters.get((group[0].result.request, resource.name))
        devices = sorted((one.device for one in group), key=lambda one: natural_key(one.id))
        if not group[0].result.admin:  # others may be using the device
            self._calls.pre_start(resource, devices, limit(left()))
        value = None if given is None else given.value
        allocation = self._calls.allocate(resource, devices, value, limit(left()))
        may_differ = overrides(resource.plugin, "pre_start")
        self._check(devices, allocation, may_differ=may_differ)
        if allocation.annotations:
            self._problems.say(
                resource.name,
                "annotations have no way into a claim",
                resource=resource.name,
                annotations=", ".join(sorted(allocation.annotations)),
            )
        return allocation


def _groups(found: Sequence[Located]) -> Iterator[tuple[str, Sequence[Located]]]:
    """Yield the devices of each request and resource, with the end of their CDI device's name."""
    requests: dict[str, dict[str, list[Located]]] = {}
    for one in found:
        by_resource = requests.setdefault(one.result.request, {})
        by_resource.setdefault(one.resource.name, []).append(one)
    for by_resource in requests.values():
        for number, name in enumerate(sorted(by_resource)):
            # No name of a request has a dot.
            yield f".{number}" if number else "", by_resource[name]


def _recorded(found: Located, cdi_names: Sequence[str]) -> RecordedDevice:
    result = found.result
    return RecordedDevice(
        resource=found.resource.name,
        id=found.device.id,
        request=result.request,
        pool=result.pool,
        name=result.device,
        admin=result.admin,
        share=result.share,
        cdi_names=cdi_names,
        part=None if result.admin else _recorded_part(found.device.part),
    )


def _recorded_part(part: DevicePart | None) -> DevicePart | None:
    """Return a part for a record: how much there was of its counters is no news later."""
    if part is None or not part.on_demand:
        return None
    return replace(part, of=Counters(part.of.name, {}))
