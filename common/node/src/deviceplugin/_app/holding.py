"""Holding devices: remembering which, and letting go of what nobody uses any more."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from deviceplugin._app import hold_folder
from deviceplugin._app.hold_progress import (
    FIRST_REST,
    LET_GO,
    RELEASING,
    UNKNOWN,
    Outcome,
    Progress,
)
from deviceplugin._app.hold_socket import HoldSocket
from deviceplugin._attribution.held_devices import Holds
from deviceplugin._attribution.hold_file import HoldFile
from deviceplugin._attribution.holds import Found, Hold, HoldError
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._discovery.loop import Discovery
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.hooks import HooksByResource, reason_of
from deviceplugin._platform.unix_sockets import advised
from deviceplugin._platform.waiting import Waiter
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_LET_GO_TIMEOUT: Final = 5.0
_LONGEST_REST = 30.0
"""Most seconds between two attempts to let go of a device."""
_AGAIN: Final = 5.0
"""Seconds after which is looked who uses what is held, and whether the folder can be used."""


@dataclass(eq=False, repr=False, kw_only=True)
class Holding:
    """The holds of a process. ``run`` is the thread that lets go; the rest is thread-safe.

    Only the process with the lock on ``folder`` makes and ends holds: of two with one name, the
    second says so, and gives out nothing that the first holds.
    """

    folder: Path
    ownership: Ownership
    resources: Callable[[], Mapping[str, Resource]]
    metrics: Metrics
    discoveries: Sequence[Discovery] = ()
    socket: HoldSocket = field(init=False)
    """Is set before ``run``, because what answers needs this object."""
    problem: str = "not started"
    """Why devices cannot be held, or what was held is not known; empty if all is right."""
    progress: dict[str, Progress] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    """Held while the holds change."""
    waiter: Waiter = field(default_factory=Waiter)
    repairing: Waiter = field(default_factory=Waiter)
    locked: int | None = None
    is_over: bool = False
    wish: Callable[[], object] = bool
    """Holds what is to be repaired by itself. This and ``repair`` are set before ``run``."""
    repair: Callable[[], object] = bool
    """Begins the repair that is due."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """What became of the last attempts to repair, by the name of the hold."""
    kept: dict[str, set[str]] = field(default_factory=dict)
    """The holds that cannot be released now, each with those whose repair is the reason."""

    def __post_init__(self) -> None:
        self.holds = Holds(self.ownership.hold)
        self.file = HoldFile(self.folder / "holds.json")
        self._problems = Problems(log)
        self.hooks = HooksByResource()

    def open(self) -> bool:
        """Read what was held before, and return whether that is new.

        What is held counts also where nothing can be changed: a pod may start before the one it
        replaces has ended, or a disk has become read-only.
        """
        try:
            locked = hold_folder.locked(self.folder)
        except OSError as error:
            why = "another process has it: give each its own instance, unless it ends soon"
            text = why if isinstance(error, BlockingIOError) else advised(error)
            self.problem = f"{self.folder}: {text}"
            self._problems.say("folder", "holds unavailable", error=self.problem)
            if (known := self.file.peek()) is None:
                return False
            self.set(known, in_use=False, adds=False)
        else:
            self._read()
            self.locked = locked  # from now on requests are answered
        return True

    def _read(self) -> None:
        self._problems.over("folder")
        holds, self.problem = self.file.load()
        if self.problem:
            log.error("holds damaged", extra={"error": self.problem})
        self.set(holds, in_use=False)
        for hold in holds:
            log.info("device still held", extra=_fields(hold))

    # Its thread.

    def run(self) -> None:
        """Let go of what is held as soon as nobody uses it, until stopped."""
        end = self.ownership.subscribe(self.waiter.poke)
        try:
            while not self.waiter.is_over():
                if self.locked is None and self.open():
                    self.changed()
                wait = _AGAIN
                if self.locked is not None:
                    self.socket.open(self.folder)
                    wait = min([wait, *map(self._advance, self.holds.all)])
                    self.wish()
                    self.repair()
                self.waiter.until_poked(wait)
        finally:
            end()
            self.socket.close()
            with self.lock:
                self.is_over = True
                self._close()

    def _close(self) -> None:
        """Give the folder to the next process, but not while a reset runs in this one."""
        if self.is_over and self.locked is not None and not self.kept:
            if not self.holds.all and not self.problem:
                hold_folder.remove(self.folder, self.file.names)
            os.close(self.locked)
            self.locked = None

    def stop(self) -> None:
        self.hooks.close()
        self.waiter.end()
        self.repairing.end()

    def _advance(self, hold: Hold) -> float:
        """Let go of what ``hold`` has, if nobody uses it; return for how long to do nothing."""
        known = self._known(hold)
        progress = self.progress.get(hold.name)
        if progress is None or progress.is_over(known):
            return _AGAIN
        if (left := progress.not_before - time.monotonic()) > 0:
            return left
        users = self.ownership.users(known.keys())
        if users is None or users:
            progress.state = "waiting for its users" if users else UNKNOWN
            return _AGAIN
        with self.lock:
            progress.done, progress.in_use = known, False
            self.equip_all()
        problem = self.have(hold, "let_go", _LET_GO_TIMEOUT)
        with self.lock:
            if self.progress.get(hold.name) is not progress:
                return 0.0  # it was released meanwhile
            progress.state = f"not let go: {problem}" if problem else LET_GO
        return self._rest(hold, progress, problem)

    def _rest(self, hold: Hold, progress: Progress, problem: str) -> float:
        """Report an attempt; return for how long to do nothing."""
        if not problem:
            progress.rest = FIRST_REST
            self.report("device let go", hold)
            return _AGAIN
        self._problems.say(hold.name, "device not let go", **_fields(hold), error=problem)
        rest, progress.rest = progress.rest, min(2 * progress.rest, _LONGEST_REST)
        progress.not_before = time.monotonic() + rest
        return rest

    def have(self, hold: Hold, hook: str, limit: float) -> str:
        """Have plugins do something with the devices of ``hold``; return why one cannot."""
        for each, devices in self.owned(hold):
            if not overrides(each.plugin, hook):
                continue
            try:
                called = getattr(each.plugin, hook)
                self.hooks[each.name].call(hook, called, devices, timeout=limit)
            except DevicePluginError as error:
                return reason_of(error)
        return ""

    def owned(self, hold: Hold) -> Iterator[tuple[Discovery, Sequence[Device]]]:
        """Yield each plugin that has devices of ``hold``, with these."""
        members = self.holds.members(hold)
        for each in self.discoveries:
            if devices := [one.device for one in members if one.plugin == each.name]:
                yield each, devices

    # Repairs.

    def is_let_go(self, hold: Hold) -> bool:
        progress = self.progress.get(hold.name)
        if progress is None or progress.state != LET_GO:
            return False
        return progress.is_over(self._known(hold))

    def _known(self, hold: Hold) -> Mapping[Key, object]:
        return {one.key: _facts(one.device) for one in self.holds.members(hold)}

    def keep(self, hold: Hold, for_: Hold) -> bool:
        """Keep ``hold`` from being released while ``for_`` is repaired; return if it is held."""
        with self.lock:
            progress = self.progress.get(hold.name)
            is_held = progress is not None and progress.state != RELEASING
            if is_held:
                self.kept.setdefault(hold.name, set()).add(for_.name)
            return is_held

    def keep_no_more(self, for_: Hold) -> None:
        with self.lock:
            left = {name: whose - {for_.name} for name, whose in self.kept.items()}
            self.kept = {name: whose for name, whose in left.items() if whose}
            self._close()

    def named(self, name: str) -> Hold | None:
        return next((one for one in self.holds.all if one.name == name), None)

    def change(self, name: str, **changes: Any) -> Hold:
        """Change what is known of a hold, on the disk first; HoldError if that cannot be done."""
        with self.lock:
            hold = self.named(name)
            if hold is None:
                raise HoldError(f"{name} is not held any more")
            new = replace(hold, **changes)
            self.save([new if one is hold else one for one in self.holds.all])
            return new

    def save(self, holds: Sequence[Hold]) -> None:
        """Make ``holds`` what is held, on the disk first. The caller has the lock."""
        if self.locked is None:  # another process may have the folder now
            raise HoldError("nothing was changed: the plugin is stopping")
        self.file.save(holds)
        self.set(holds)

    # Which devices.

    def equip(self, plugin: Plugin, name: str) -> None:
        """Give ``plugin`` what it must not open: before it is used, and before ``let_go``."""
        in_use = {name for name, one in self.progress.items() if one.in_use}
        holds = [one for one in self.holds.all if one.name not in in_use]
        members = [each for one in holds for each in self.holds.members(one)]
        plugin.held = [one.device for one in members if one.plugin == name]

    def equip_all(self) -> None:
        for each in self.discoveries:
            self.equip(each.plugin, each.name)

    def there(self, resource: str = "") -> Found:
        """Return the devices of a resource, or all, as they are published now."""
        names = {id(each.plugin): each.name for each in self.discoveries}
        return {
            (one.name, device.id): (names.get(id(one.plugin), ""), device)
            for one in self.resources().values()
            if resource in {"", one.name}
            for device in one.devices.values()
        }

    def set(self, holds: Sequence[Hold], *, in_use: bool = True, adds: bool = True) -> None:
        """Make ``holds`` what is held; plugins may have what is new open if it is ``in_use``."""
        known = self.progress
        self.progress = {one.name: known.get(one.name, Progress(in_use)) for one in holds}
        self.outcomes = {one: text for one, text in self.outcomes.items() if one in self.progress}
        self.holds.set(holds, self.there(), adds=adds)
        self.metrics.held.labels().set(sum(len(one.things) for one in holds))
        self.metrics.oldest_hold.labels().set(min((one.since for one in holds), default=0.0))

    def changed(self) -> None:
        self.waiter.poke()
        for each in self.discoveries:
            each.rediscover()

    def report(self, event: str, hold: Hold) -> None:
        self._problems.over(hold.name)
        log.info(event, extra=_fields(hold))
        self.metrics.events.add(event, device=hold.name, detail=hold.reason)


def _fields(hold: Hold) -> dict[str, Any]:
    return {"device": hold.name, "reason": hold.reason}


def _facts(device: Device) -> object:
    return device.hardware, dict(device.attributes)
