"""Holding devices: what an operator asks for, and letting go of what nobody uses any more."""

import fcntl
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

from deviceplugin._app.hold_socket import HoldSocket
from deviceplugin._attribution.holds import MOST, Found, Hold, HoldError, HoldFile, Holds, make
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._discovery.loop import Discovery
from deviceplugin._discovery.found import Groups
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.hooks import HooksByResource, reason_of
from deviceplugin._platform.unix_sockets import advised
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

FOLDER: Final = ".holds"
"""Below the plugin directory, with a folder for each plugin. A kubelet leaves folders alone."""
_POD: Final = re.compile(r"(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
"""The name of a DaemonSet's pod, with its random end."""
_LET_GO_TIMEOUT: Final = 5.0
_TAKE_BACK_TIMEOUT: Final = 30.0
_FIRST_REST, _LONGEST_REST = 1.0, 30.0
"""Seconds between two attempts to let go of a device."""
_AGAIN: Final = 5.0
"""Seconds after which is looked who uses what is held, and whether the folder can be used."""
UNKNOWN: Final = "waiting: not known what pods have"
LET_GO: Final = "let go"
_RELEASING: Final = "being released"


def instance(given: str, hostname: str, otherwise: str) -> str:
    """Return the name of this plugin among those of the node: the same after a restart of its pod.

    It is the one ``given``, or that of the DaemonSet whose pod is on its own network.
    """
    pod = _POD.fullmatch(hostname)
    return given or (pod["owner"] if pod else otherwise)


@dataclass(slots=True)
class _Progress:
    """How far the plugins are with one hold."""

    in_use: bool = False
    """Whether plugins may have the devices open. Not after a restart: they have never opened them.
    """
    state: str = "waiting"
    rest: float = _FIRST_REST
    not_before: float = 0.0


@dataclass(eq=False, repr=False, kw_only=True)
class Holding:
    """The holds of a process. ``run`` is the thread that lets go; the rest is thread-safe.

    Only the process with the lock on ``folder`` has holds: of two with one name, the second says so
    and waits.
    """

    folder: Path
    ownership: Ownership
    resources: Callable[[], Mapping[str, Resource]]
    metrics: Metrics
    discoveries: Sequence[Discovery] = ()
    problem: str = "not started"
    """Why devices cannot be held, or what was held is not known; empty if all is right."""
    _progress: dict[str, _Progress] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    """Held while the holds change."""
    _wake: Event = field(default_factory=Event)
    _stopped: bool = False
    _locked: int | None = None

    def __post_init__(self) -> None:
        self._holds = Holds(self.ownership.hold)
        self._file = HoldFile(self.folder / "holds.json")
        self._problems = Problems(log)
        self._hooks = HooksByResource()
        self.socket = HoldSocket(self.answer)

    # For discoveries.

    def apply(self, plugin: str, groups: Groups) -> None:
        """Add what is held and was not discovered."""
        self._holds.apply(plugin, groups)

    def open(self) -> None:
        """Read what was held before, if the folder is not another process's."""
        try:
            for one in (self.folder.parent, self.folder):
                one.mkdir(mode=0o700, exist_ok=True)
            self._locked = os.open(
                self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._close()
            why = "another process has it: give each its own instance"
            text = why if isinstance(error, BlockingIOError) else advised(error)
            self.problem = f"{self.folder}: {text}"
            self._problems.say("folder", "holds unavailable", error=self.problem)
            return
        self._problems.over("folder")
        held, self.problem = self._file.load()
        if self.problem:
            log.error("holds damaged", extra={"error": self.problem})
        with self._lock:
            self._set(held)
        for one in held:
            log.info("device still held", extra=_fields(one))
        self.socket.open(self.folder)

    def _close(self) -> None:
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    def equip(self, plugin: Plugin, name: str) -> None:
        """Give ``plugin``, before it is used, what it must not open."""
        plugin.held = self._held_of(name)

    # Its thread.

    def run(self) -> None:
        """Let go of what is held as soon as nobody uses it, until stopped."""
        end = self.ownership.subscribe(self._wake.set)
        try:
            while not self._stopped:
                self._wake.clear()
                if self._locked is None:
                    self.open()
                wait = min([_AGAIN, *map(self._advance, self._holds.all)])
                self._wake.wait(wait)
        finally:
            end()
            self.socket.close()
            self._close()

    def stop(self) -> None:
        self._stopped = True
        self._hooks.close()
        self._wake.set()

    def _advance(self, hold: Hold) -> float:
        """Let go of what ``hold`` has, if nobody uses it; return for how long to do nothing."""
        with self._lock:
            progress = self._progress.get(hold.name)
            if progress is None or progress.state in {LET_GO, _RELEASING}:
                return _AGAIN
        if (left := progress.not_before - time.monotonic()) > 0:
            return left
        users = self.ownership.users(self._keys(hold))
        if users is None or users:
            progress.state = "waiting for its users" if users else UNKNOWN
            return _AGAIN
        problem = self._let_go(hold, progress)
        with self._lock:
            if self._progress.get(hold.name) is not progress:
                return 0.0  # it was released meanwhile
            progress.state = f"not let go: {problem}" if problem else LET_GO
        if not problem:
            self._report("device let go", hold)
            return _AGAIN
        self._problems.say(hold.name, "device not let go", **_fields(hold), error=problem)
        progress.not_before = time.monotonic() + progress.rest
        progress.rest = min(2 * progress.rest, _LONGEST_REST)
        return progress.not_before - time.monotonic()

    def _let_go(self, hold: Hold, progress: _Progress) -> str:
        """Have plugins close what they have open; return why one has not."""
        with self._lock:
            progress.in_use = False
            self._equip_all()
        for discovery, devices in self._concerned(hold):
            if why := self._call(discovery, "let_go", devices, _LET_GO_TIMEOUT):
                return why
        return ""

    def _call(
        self, discovery: Discovery, hook: str, devices: Sequence[Device], limit: float
    ) -> str:
        plugin = discovery.plugin
        if not overrides(plugin, hook):
            return ""
        try:
            self._hooks[discovery.name].call(hook, getattr(plugin, hook), devices, timeout=limit)
        except DevicePluginError as error:
            return reason_of(error)
        return ""

    # Which devices.

    def _concerned(self, hold: Hold) -> Iterator[tuple[Discovery, Sequence[Device]]]:
        for each in self.discoveries:
            if devices := [one.device for one in hold.devices if one.plugin == each.name]:
                yield each, devices

    def _held_of(self, plugin: str) -> Sequence[Device]:
        """Return the devices that a plugin has let go of, or is to."""
        using = {name for name, one in self._progress.items() if one.in_use}
        holds = [one for one in self._holds.all if one.name not in using]
        return [each.device for one in holds for each in one.devices if each.plugin == plugin]

    def _equip_all(self) -> None:
        for each in self.discoveries:
            self.equip(each.plugin, each.name)

    def _there(self, resource: str = "") -> Found:
        names = {id(each.plugin): each.name for each in self.discoveries}
        return {
            (one.name, device.id): (names.get(id(one.plugin), ""), device)
            for one in self.resources().values()
            if resource in {"", one.name}
            for device in one.devices.values()
        }

    def _keys(self, hold: Hold) -> Sequence[tuple[str, str]]:
        there = self._there()
        return [*hold.keys, *(key for key, (_, one) in there.items() if hold.covers(key[0], one))]

    # What an operator asks for.

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what is asked for; HoldError if that cannot be done, and then nothing has changed."""
        if self._locked is None:
            raise HoldError(f"devices cannot be held here: {self.problem}")
        name, reason = str(request.get("device", "")), str(request.get("reason", ""))
        match request.get("do"):
            case "list":
                return {"holds": self.listed()}
            case "hold":
                there = self._there(str(request.get("resource", "")))
                hold = make(name, reason, there, time.time(), every=bool(request.get("all")))
                return self._hold(hold, dry_run=bool(request.get("dry_run")))
            case "release":
                return self._release(name, dry_run=bool(request.get("dry_run")))
            case other:
                raise HoldError(f"{other!r} is not list, hold or release")

    def listed(self) -> Sequence[Mapping[str, Any]]:
        """Return what is held, for JSON."""
        return [self._described(one) for one in self._holds.all]

    def _described(self, hold: Hold) -> Mapping[str, Any]:
        progress = self._progress.get(hold.name)
        return {
            "device": hold.name,
            "reason": hold.reason,
            "since": hold.since,
            "state": progress.state if progress else "not held",
            "devices": [{"resource": name, "id": one} for name, one in sorted(hold.keys)],
            "users": self.ownership.users(self._keys(hold)),
        }

    def _hold(self, hold: Hold, *, dry_run: bool) -> Mapping[str, Any]:
        with self._lock:
            same = [
                one for one in self._holds.all if one.name == hold.name or one.keys == hold.keys
            ]
            others = [one for one in self._holds.all if one not in same]
            if len(others) >= MOST:
                raise HoldError(f"{MOST} devices are held: release one first")
            if same:  # another reason, maybe by another name
                known = {each.key: each for one in (*same, hold) for each in one.devices}
                hold = replace(same[0], reason=hold.reason, devices=list(known.values()))
            if not dry_run:
                self._file.save([*others, hold])
                self._progress.setdefault(hold.name, _Progress(in_use=True))
                self._set([*others, hold])
        if not dry_run:
            self._report("device held", hold)
            self._changed()
        return {"holds": [self._described(hold)], "was_held": bool(same)}

    def _release(self, name: str, *, dry_run: bool) -> Mapping[str, Any]:
        with self._lock:
            hold = self._named(name)
            if dry_run:
                return {"holds": [self._described(hold)]}
            self._progress[hold.name] = _Progress(in_use=True, state=_RELEASING)
            self._equip_all()
        problem = ""
        for discovery, devices in self._concerned(hold):
            problem = problem or self._call(discovery, "take_back", devices, _TAKE_BACK_TIMEOUT)
        with self._lock:
            left = [one for one in self._holds.all if one.name != hold.name]
            try:
                if problem:
                    raise HoldError(f"{hold.name} stays held, because it is not ready: {problem}")
                self._file.save(left)
            except HoldError:
                self._progress[hold.name] = _Progress()
                self._wake.set()
                raise
            self._set(left)
        self._report("device released", hold)
        self._changed()
        return {"holds": [self._described(hold)]}

    def _named(self, name: str) -> Hold:
        holds = self._holds.all
        found = [one for one in holds if one.name == name] or [
            one for one in holds if one.concerns(name)
        ]
        known = ", ".join(one.name for one in holds) or "nothing is"
        if not found:
            raise HoldError(f"{name!r} is not held: {known}")
        if len(found) > 1 or (found[0].name != name and not found[0].is_one_thing):
            raise HoldError(f"{name!r} is a part of what is held as {known}: release that")
        return found[0]

    def _set(self, holds: Sequence[Hold]) -> None:
        """Make ``holds`` what is held."""
        self._progress = {one.name: self._progress.get(one.name, _Progress()) for one in holds}
        self._holds.set(holds, self._there())
        self.metrics.held.labels().set(sum(len(one.things) for one in holds))
        self.metrics.oldest_hold.labels().set(min((one.since for one in holds), default=0.0))

    def _changed(self) -> None:
        self._wake.set()
        for each in self.discoveries:
            each.rediscover()

    def _report(self, event: str, hold: Hold) -> None:
        self._problems.over(hold.name)
        log.info(event, extra=_fields(hold))
        self.metrics.events.add(event, device=hold.name, detail=hold.reason)


def _fields(hold: Hold) -> dict[str, Any]:
    return {"device": hold.name, "reason": hold.reason}
