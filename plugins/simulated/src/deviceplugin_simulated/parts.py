"""The parts that there are on the simulated hardware, and making and removing them."""

import fcntl
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO
from uuid import uuid4

import deviceplugin as dp
from deviceplugin.kit.state import State
from deviceplugin_simulated.life import Action, Event

_VERSION: Final = 1
_NO_NAME: Final = re.compile(r"\W", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A part on the hardware. It is complete in itself, so that settings may change meanwhile."""

    identity: str
    resource: str
    whole: str
    consumes: Mapping[str, int]
    groups: Sequence[str]
    by_claim: bool
    """Whether this plugin made it; otherwise somebody else did."""
    half: bool = False
    """Whether making it has not ended."""

    @classmethod
    def of(cls, part: dp.Part, resource: str, *, by_claim: bool, half: bool = False) -> "Made":
        """Return ``part`` as it was made now."""
        return cls(
            identity=str(uuid4()),
            resource=resource,
            whole=part.of.name,
            consumes=dict(part.consumes),
            groups=list(part.groups),
            by_claim=by_claim,
            half=half,
        )

    def __str__(self) -> str:
        if not self.by_claim:
            return "made by somebody else"
        return "half made" if self.half else f"made for a claim ({self.identity})"


class Hardware:
    """The parts that there are, by id. Thread-safe; several processes may share the file.

    With a file, they are there until it goes, whatever becomes of the plugin.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._state = State(path, _VERSION)
        self._there: Mapping[str, Made] = {}
        self._lock = threading.Lock()

    def there(self) -> Mapping[str, Made]:
        """Return what is there now."""
        return self._there if self._path is None else self._state.load(_read, {})

    @contextmanager
    def changing(self) -> Iterator[dict[str, Made]]:
        """Let the body change what is there; OSError if that cannot be saved: nothing changes."""
        with self._locked():
            found = dict(self.there())
            yield found
            if self._path is None:
                self._there = found
            elif not self._state.save({"parts": {key: asdict(one) for key, one in found.items()}}):
                raise OSError(f"state-file {self._path} cannot be written: see the log")

    def _locked(self) -> Any:
        return self._lock if self._path is None else _lock(self._path)


@contextmanager
def _lock(path: Path) -> Iterator[TextIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f"{path.name}.lock").open("a", encoding="ascii")
    except OSError as error:
        raise OSError(f"state-file {path}: {error.strerror}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _read(document: Mapping[str, Any]) -> dict[str, Made]:
    return {str(key): Made(**one) for key, one in document["parts"].items()}


class Parts:
    """The devices that are parts or can be divided, on hardware that is kept in ``path``."""

    def __init__(self, devices: Iterable[dp.Device], path: Path | None) -> None:
        self._parts = {device.id: device.part for device in devices if device.part}
        self._hardware = Hardware(path)

    def states(self) -> Mapping[str, str]:
        """Return how each part is that is there, by id."""
        there = self._hardware.there() if self._parts else {}
        return {device_id: str(made) for device_id, made in there.items()}

    def unlisted(self, made: Mapping[str, str]) -> Iterator[dp.Device]:
        """Yield those in ``made`` that the settings do not have any more, as they were made."""
        there = self._hardware.there() if made else {}
        for device_id in made.keys() & there.keys() - self._parts.keys():
            one = there[device_id]
            known = (part.of for part in self._parts.values() if part.of.name == one.whole)
            of = next(known, dp.Counters(one.whole, one.consumes))
            hardware = [f"{one.resource}/{one.whole}"]
            part = dp.Part(of, one.consumes, one.groups)
            yield dp.Device(device_id, resource=one.resource, hardware=hardware, part=part)

    def as_they_are(
        self, devices: Iterable[dp.Device], made: Mapping[str, str]
    ) -> Iterator[dp.Device]:
        """Yield ``devices`` with what is left for them beside parts that are not in ``made``."""
        there = self._hardware.there()
        others: dict[str, dict[str, Made]] = {}
        for device_id, one in there.items():
            if not (one.by_claim and made.get(device_id) in ("", one.identity)):
                others.setdefault(one.whole, {})[device_id] = one
        for device in devices:
            part = device.part
            if part is None:
                yield device
                continue
            present = others.get(part.of.name)
            found = _beside(device, part, present) if present else device
            is_gone = made.get(device.id) and device.id not in there
            if is_gone and found.health.state == "healthy":
                gone = dp.Health.degraded("the part is gone: the next start of the pod makes it")
                found = replace(found, health=gone)
            yield found

    def make(self, part: dp.Device, meanwhile: Callable[[], None]) -> dp.Device:
        """Make a part, or finish it; ``meanwhile`` is called while it is half made."""
        wanted = _part_of(part)
        with self._hardware.changing() as there:
            found = there.get(part.id) or Made.of(wanted, part.resource, by_claim=True, half=True)
            if not found.by_claim:
                raise dp.AllocationError(f"{part.id}: was made by somebody else")
            if why := _room(part.id, self._parts.get(part.id, wanted), there):
                raise dp.AllocationError(f"{part.id}: {why}")
            there[part.id] = found
        if found.half:
            meanwhile()
            with self._hardware.changing() as there:
                if there.get(part.id) != found:
                    raise dp.AllocationError(f"{part.id}: vanished while it was made")
                there[part.id] = found = replace(found, half=False)
        name = f"PART_{_NO_NAME.sub('_', part.id).upper()}"
        identified = replace(wanted, identity=found.identity)
        return replace(part, envs={**part.envs, name: found.identity}, part=identified)

    def unmake(self, device_id: str, identity: str) -> None:
        """Remove a part, if it is the one that this plugin made."""
        with self._hardware.changing() as there:
            found = there.get(device_id)
            if found and found.by_claim and identity in {"", found.identity}:
                del there[device_id]

    def happen(self, events: Sequence[Event]) -> list[str]:
        """Let ``events`` change the hardware. Return what could not be, a message for each."""
        problems: list[str] = []
        if events and self._parts:
            try:
                with self._hardware.changing() as there:
                    for event in events:
                        problems += self._happen(event, there)
            except OSError as error:
                problems.append(str(error))
        return problems

    def _happen(self, event: Event, there: dict[str, Made]) -> Iterator[str]:
        if event.action is Action.MAKE:
            for device_id in event.ids:
                part = self._parts[device_id]
                if device_id in there or (why := _room(device_id, part, there)):
                    yield f"{device_id}: {'is there' if device_id in there else why}"
                else:
                    there[device_id] = Made.of(part, "", by_claim=False)
            return
        for device_id, one in list(there.items()):
            if event.action is Action.UNMAKE and one.by_claim:
                continue
            if event.action is Action.REBOOT or {device_id, one.whole} & {*event.ids}:
                del there[device_id]


def _part_of(device: dp.Device) -> dp.Part:
    if device.part is None or not device.part.on_demand:
        raise dp.AllocationError(f"{device.id}: is not a part that can be made")
    return device.part


def _room(device_id: str, part: dp.Part, there: Mapping[str, Made]) -> str:
    """Return why the hardware cannot have ``part`` beside others; empty if it can."""
    others = {k: one for k, one in there.items() if one.whole == part.of.name and k != device_id}
    for counter, wanted in part.consumes.items():
        left = part.of.amounts.get(counter, 0) - _taken(counter, others)
        if wanted > left:
            return f"needs {wanted} of {counter}, and {left} is left beside {', '.join(others)}"
    groups = [frozenset(part.groups), *(frozenset(one.groups) for one in others.values())]
    if any(groups) and not frozenset.intersection(*groups):
        return f"has no group in common with {', '.join(others)}"
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
    names = ", ".join(sorted(others))
    return replace(less, health=dp.Health.unhealthy(f"somebody else made {names}", "simulated"))
