"""The parts that there are on the simulated hardware, and making and removing them."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import deviceplugin as dp
from deviceplugin.kit.log import few
from deviceplugin.kit.state import State
from deviceplugin_simulated.life import Action, Event
from deviceplugin_simulated.life import State as Troubles

_VERSION: Final = 1
_NO_NAME: Final = re.compile(r"\W", re.ASCII)
_EVENTS: Final = frozenset({Action.UNPLUG, Action.MAKE, Action.UNMAKE, Action.REBOOT})
"""Those that change which parts there are."""
_FEW: Final = 3
_LIMIT: Final = 5.0
"""Seconds to wait for another process that changes the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A part on the hardware. It is complete in itself, so that settings may change meanwhile."""

    identity: str = field(default_factory=lambda: str(uuid4()))
    resource: str
    whole: str
    consumes: Mapping[str, int]
    groups: Sequence[str]
    by_claim: bool
    """Whether this plugin made it; otherwise somebody else did."""
    half: bool
    """Whether making it has not ended."""

    def __str__(self) -> str:
        if not self.by_claim:
            return "made by somebody else"
        return "half made" if self.half else f"made for a claim ({self.identity})"


class Parts:
    """The devices that are parts or can be divided, and which parts there are. Thread-safe.

    With ``path``, which several processes may share, parts are there until the file goes.
    """

    def __init__(self, devices: Iterable[dp.Device], path: Path | None) -> None:
        self._parts = {device.id: device.part for device in devices if device.part}
        self._path = path
        self._state = State(path, _VERSION)
        self._unsaved: Mapping[str, Made] = {}
        self._removed: set[str] = set()
        self._lock = threading.Lock()

    def there(self) -> Mapping[str, Made]:
        """Return the parts that there are now, by id."""
        return self._unsaved if self._path is None else self._state.load(_read, {})

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Made]]:
        """Let the body change what is there. If it raises, or that is not saved, nothing changes.

        Raises:
            DevicePluginError: It is not saved.
        """
        with self._lock, self._state.alone(_LIMIT):
            found = dict(self.there())
            yield found
            if self._path is None:
                self._unsaved = found
            elif not self._state.save({"parts": {key: asdict(one) for key, one in found.items()}}):
                raise dp.DevicePluginError(f"state-file {self._path} is not written: see the log")

    def as_they_are(
        self, devices: Iterable[dp.Device], made: Callable[[], Mapping[str, str]]
    ) -> Iterator[dp.Device]:
        """Yield ``devices`` with what is left for them beside parts that are not in ``made``.

        After them come those that are ``made``, but that the settings do not have any more. A part
        may be made or removed meanwhile.
        """
        before, there, now = made(), self.there(), made()
        known, removed = {**before, **now}, self._no_longer(before)
        others: dict[str, dict[str, Made]] = {}
        for device_id, one in there.items():
            claimed = {before.get(device_id), now.get(device_id)}
            if not one.by_claim or claimed.isdisjoint(("", one.identity)):
                others.setdefault(one.whole, {})[device_id] = one
        lasting = {key for key, one in before.items() & now.items() if one and one not in removed}
        gone = dp.Health.degraded("the part is gone: the next start of the pod makes it")
        for device in chain(devices, self._unlisted(known, there)):
            found, part = device, device.part
            if part and (present := others.get(part.of.name)):
                found = _beside(device, part, present)
            if device.id in lasting - there.keys() and found.health.state == "healthy":
                found = replace(found, health=gone)
            yield found

    def _no_longer(self, made: Mapping[str, str]) -> frozenset[str]:
        """Return the identities of parts that were removed, but are still ``made`` for others."""
        with self._lock:
            self._removed &= {*made.values()}
            return frozenset(self._removed)

    def _unlisted(self, made: Mapping[str, str], there: Mapping[str, Made]) -> Iterator[dp.Device]:
        for device_id in made.keys() & there.keys() - self._parts.keys():
            one = there[device_id]
            known = (part.of for part in self._parts.values() if part.of.name == one.whole)
            of = next(known, dp.Counters(one.whole, one.consumes))
            hardware = [f"{one.resource}/{one.whole}"]
            part = dp.Part(of, one.consumes, one.groups)
            yield dp.Device(device_id, resource=one.resource, hardware=hardware, part=part)

    def make(self, part: dp.Device, meanwhile: Callable[[], None]) -> dp.Device:
        """Make a part, or finish it; ``meanwhile`` is called while it is half made."""
        wanted = part.part
        if wanted is None or not wanted.on_demand:
            raise dp.AllocationError(f"{part.id}: is not a part that can be made")
        with self._changing() as there:
            if part.id not in there:
                if why := _room(part.id, self._parts.get(part.id, wanted), there):
                    raise dp.AllocationError(f"{part.id}: {why}")
                there[part.id] = _half(wanted, part.resource)
            found = there[part.id]
        if not found.by_claim:
            raise dp.AllocationError(f"{part.id}: was made by somebody else")
        if found.half:
            meanwhile()
            with self._changing() as there:
                if there.get(part.id) != found:
                    raise dp.AllocationError(f"{part.id}: vanished while it was made")
                there[part.id] = replace(found, half=False)
        name = f"PART_{_NO_NAME.sub('_', part.id).upper()}"
        identified = replace(wanted, identity=found.identity)
        return replace(part, envs={**part.envs, name: found.identity}, part=identified)

    def unmake(self, device_id: str, identity: str) -> None:
        """Remove a part, if it is the one that this plugin made."""
        with self._changing() as there:
            found = there.get(device_id)
            if found and found.by_claim and identity in {"", found.identity}:
                self._removed.add(found.identity)
                del there[device_id]

    def happen(self, events: Sequence[Event], state: Troubles) -> str:
        """Let ``events`` change the hardware, whose ``state`` this is; return what could not be."""
        problems: list[str] = []
        if ours := [one for one in events if self._parts and one.action in _EVENTS]:
            try:
                with self._changing() as there:
                    for event in ours:
                        problems += self._happen(event, state, there)
            except dp.DevicePluginError as error:
                return str(error)
        return few(problems, _FEW, "; ")

    def _happen(self, event: Event, state: Troubles, there: dict[str, Made]) -> Iterator[str]:
        if event.action is Action.MAKE:
            for device_id in event.ids:
                part = self._parts[device_id]
                why = "is there" if device_id in there else _room(device_id, part, there)
                if state.of(part.of.name).unplugged or state.of(device_id).unplugged:
                    why = "is unplugged"
                if why:
                    yield f"{device_id}: {why}"
                else:
                    there[device_id] = replace(_half(part, ""), by_claim=False, half=False)
            return
        for device_id, one in list(there.items()):
            if event.action is Action.UNMAKE and one.by_claim:
                continue
            if event.action is Action.REBOOT or {device_id, one.whole} & {*event.ids}:
                del there[device_id]


def _half(part: dp.Part, resource: str) -> Made:
    """Return ``part`` as this plugin begins to make it."""
    consumes, groups = dict(part.consumes), list(part.groups)
    whole = part.of.name
    return Made(
        resource=resource, whole=whole, consumes=consumes, groups=groups, by_claim=True, half=True
    )


def _read(document: Mapping[str, Any]) -> dict[str, Made]:
    found = {str(key): Made(**one) for key, one in document["parts"].items()}
    return {key: replace(one, consumes=dict(one.consumes)) for key, one in found.items()}


def _room(device_id: str, part: dp.Part, there: Mapping[str, Made]) -> str:
    """Return why the hardware cannot have ``part`` beside others; empty if it can."""
    others = {k: one for k, one in there.items() if one.whole == part.of.name and k != device_id}
    for counter, wanted in part.consumes.items():
        left = part.of.amounts.get(counter, 0) - _taken(counter, others)
        if wanted > left:
            return f"needs {wanted} of {counter}, and {left} is left beside {few(others, _FEW)}"
    groups = [frozenset(part.groups), *(frozenset(one.groups) for one in others.values())]
    if any(groups) and not frozenset.intersection(*groups):
        return f"has no group in common with {few(others, _FEW)}"
    return ""


def _taken(counter: str, by: Mapping[str, Made]) -> int:
    return sum(one.consumes.get(counter, 0) for one in by.values())


def _beside(device: dp.Device, part: dp.Part, others: Mapping[str, Made]) -> dp.Device:
    """Return ``device`` as it is while ``others``, which claims do not have, are there."""
    left = {name: max(0, n - _taken(name, others)) for name, n in part.of.amounts.items()}
    less = replace(device, part=replace(part, of=dp.Counters(part.of.name, left)))
    why = "is there" if device.id in others else _room(device.id, part, others)
    if not why or not device.health.healthy:
        return less
    problem = f"somebody else made {few(sorted(others), _FEW)}"
    return replace(less, health=dp.Health.unhealthy(problem, "simulated"))
