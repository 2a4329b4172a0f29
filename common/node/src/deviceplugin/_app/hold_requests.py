"""What an operator asks for: to hold devices, to release them, and to list what is held."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from deviceplugin._app.hold_list import described, listed
from deviceplugin._app.hold_progress import RELEASING, Progress
from deviceplugin._app.holding import Holding
from deviceplugin._attribution.holds import MOST, Hold, HoldError, Then, make
from deviceplugin.model import Device
from deviceplugin.plugin import overrides

_TIMEOUT: Final = 30.0
"""Seconds for a plugin to check a device before its release."""
_REACHED_TIMEOUT: Final = 5.0
_RUNS: Final = "stays held: a reset that concerns it runs"


class Requests:
    """Answers requests, one at a time."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what is asked for; HoldError if that cannot be done, and then nothing has changed."""
        if self._holding.locked is None:
            raise HoldError(f"devices cannot be held here: {self._holding.problem}")
        name, reason = str(request.get("device", "")), str(request.get("reason", ""))
        match request.get("do"):
            case "list":
                return {"holds": listed(self._holding)}
            case "hold":
                there = self._holding.there(str(request.get("resource", "")))
                hold = make(name, reason, there, time.time(), every=bool(request.get("all")))
                hold = replace(hold, then=self._then(hold, request.get("then", "")))
                return self._hold(hold, dry_run=bool(request.get("dry_run")))
            case "release":
                return self.release(self._named(name), dry_run=bool(request.get("dry_run")))
            case other:
                raise HoldError(f"{other!r} is not list, hold or release")

    def _then(self, hold: Hold, then: object) -> Then:
        """Return what to do once it is let go; HoldError if a plugin cannot."""
        if then not in {"", "reset", "release"}:
            raise HoldError(f"{then!r} is not reset or release")
        if then:
            self.reached(hold)
        return then

    def reached(self, hold: Hold) -> frozenset[str]:
        """Return what a reset of ``hold`` resets besides; DevicePluginError if it has none."""
        found: set[str] = set()
        for each, devices in self._holding.owned(hold):
            if not overrides(each.plugin, "reset"):
                how = "hold it without that, reset it in another way, and release it"
                raise HoldError(f"{each.name} cannot reset its devices: {how}")
            call, hook = self._holding.hooks[each.name].call, each.plugin.reset_reaches
            found |= call("reset_reaches", _words, hook, devices, timeout=_REACHED_TIMEOUT)
        return frozenset(found)

    def _hold(self, hold: Hold, *, dry_run: bool) -> Mapping[str, Any]:
        with self._holding.lock:
            held = self._holding.holds.all
            same = [one for one in held if one.name == hold.name or one.keys == hold.keys]
            others = [one for one in held if one not in same]
            is_over: object = False
            if len(others) >= MOST:
                raise HoldError(f"{MOST} devices are held: release one first")
            if same:  # another reason, maybe by another name
                known = {each.key: each for one in (*same, hold) for each in one.devices}
                every = hold.by_attribute or same[0].by_attribute
                devices = list(known.values())
                for one in same:
                    self._check_owner(one, hold)
                before = replace(same[0], devices=devices, by_attribute=every)
                outcome = self._holding.outcomes.get(before.name)
                is_over = outcome and (outcome.is_final or not hold.then)
                tries = 0 if is_over else before.tries
                hold = replace(before, reason=hold.reason, then=hold.then, tries=tries)
            if not dry_run:
                self._holding.save([*others, hold])
                if is_over:
                    self._holding.outcomes.pop(hold.name, None)
        if not dry_run:
            self._holding.report("device held", hold)
            self._holding.changed()
        return {"holds": [described(self._holding, hold)], "was_held": bool(same)}

    def release(
        self, hold: Hold, check: Callable[[Hold], str] | None = None, *, dry_run: bool = False
    ) -> Mapping[str, Any]:
        """Give the devices to pods again; HoldError if the plugin or ``check`` has an objection.

        ``check`` is that of the repair, which alone may release what it keeps.
        """
        with self._holding.lock:
            if not check and hold.name in self._holding.kept:
                raise HoldError(f"{hold.name} {_RUNS}")
            if dry_run:
                return {"holds": [described(self._holding, hold)]}
            self._holding.progress[hold.name] = Progress(in_use=True, state=RELEASING)
            self._holding.equip_all()
        why = self._holding.have(hold, "take_back", _TIMEOUT) or (check(hold) if check else "")
        problem = why and f"it is not ready: {why}"
        with self._holding.lock:
            try:
                if not problem:
                    held = self._holding.holds.all
                    self._holding.save([one for one in held if one.name != hold.name])
            except HoldError as error:
                problem = str(error)
            if problem:
                self._holding.progress[hold.name] = Progress()
        if problem:
            self._holding.waiter.poke()
            raise HoldError(f"{hold.name} stays held: {problem}")
        self._holding.report("hold released", hold)
        self._holding.changed()
        return {"holds": [described(self._holding, hold)]}

    def _check_owner(self, now: Hold, new: Hold) -> None:
        """Refuse a hold that would disturb a repair, or the work of whoever holds it for a reason.

        The reason is what tells two programs from each other.
        """
        if (now.then or new.then) and now.reason != new.reason:
            advice = "wait for its end, or release it first"
            raise HoldError(f"{now.name} is held already, {now.reason!r}: {advice}")
        if now.then != new.then and now.name in self._holding.kept:
            raise HoldError(f"{now.name} {_RUNS}")

    def _named(self, name: str) -> Hold:
        holds = self._holding.holds.all
        found = [one for one in holds if one.name == name] or [
            one for one in holds if one.concerns(name)
        ]
        known = ", ".join(one.name for one in holds) or "nothing is"
        if not found:
            raise HoldError(f"{name!r} is not held: {known}")
        if len(found) > 1 or (found[0].name != name and len(found[0].things) > 1):
            raise HoldError(f"{name!r} is a part of what is held as {known}: release that")
        return found[0]


def _words(hook: Callable[[Sequence[Device]], Iterable[str]], given: Sequence[Device]) -> set[str]:
    return {*map(str, hook(given))}
