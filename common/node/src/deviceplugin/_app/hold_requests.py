"""What an operator asks for: to hold devices, to release them, and to list what is held."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from deviceplugin._app.hold_progress import RELEASING, Progress
from deviceplugin._app.holding import Holding
from deviceplugin._attribution.holds import MOST, Hold, HoldError, Then, make

_TIMEOUT: Final = 30.0
"""Seconds for a plugin to check a device before its release."""


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
                return {"holds": self._holding.listed()}
            case "hold":
                there = self._holding.there(str(request.get("resource", "")))
                hold = make(name, reason, there, time.time(), every=bool(request.get("all")))
                hold = replace(hold, then=self._then(hold, request.get("then", "")))
                return self._hold(hold, dry_run=bool(request.get("dry_run")))
            case "release":
                with self._holding.lock:
                    hold = self._named(name)
                    if self._holding.kept.get(hold.name):
                        raise HoldError(f"{hold.name} stays held: a reset that concerns it runs")
                    if bool(request.get("dry_run")):
                        return {"holds": [self._holding.described(hold)]}
                return self.release(hold)
            case other:
                raise HoldError(f"{other!r} is not list, hold or release")

    def _then(self, hold: Hold, then: object) -> Then:
        """Return what to do once it is let go; HoldError if a plugin cannot."""
        if then not in {"", "reset", "release"}:
            raise HoldError(f"{then!r} is not reset or release")
        if then:
            self._holding.reached(hold)
        return then

    def _hold(self, hold: Hold, *, dry_run: bool) -> Mapping[str, Any]:
        with self._holding.lock:
            held = self._holding.holds.all
            same = [one for one in held if one.name == hold.name or one.keys == hold.keys]
            others = [one for one in held if one not in same]
            if len(others) >= MOST:
                raise HoldError(f"{MOST} devices are held: release one first")
            if same:  # another reason, maybe by another name
                known = {each.key: each for one in (*same, hold) for each in one.devices}
                every = hold.by_attribute or same[0].by_attribute
                devices = list(known.values())
                _check_owner(same[0], hold)
                before = replace(same[0], devices=devices, by_attribute=every)
                outcome = self._holding.outcomes.get(before.name)
                tries = 0 if outcome and outcome.is_final else before.tries
                hold = replace(before, reason=hold.reason, then=hold.then, tries=tries)
            if not dry_run:
                self._holding.file.save([*others, hold])
                self._holding.outcomes.pop(hold.name, None)
                self._holding.set([*others, hold])
        if not dry_run:
            self._holding.report("device held", hold)
            self._holding.changed()
        return {"holds": [self._holding.described(hold)], "was_held": bool(same)}

    def release(self, hold: Hold, check: Callable[[Hold], str] = lambda _: "") -> Mapping[str, Any]:
        """Give the devices to pods again; HoldError if the plugin or ``check`` has an objection."""
        with self._holding.lock:
            self._holding.progress[hold.name] = Progress(in_use=True, state=RELEASING)
            self._holding.equip_all()
        why = self._holding.have(hold, "take_back", _TIMEOUT) or check(hold)
        problem = why and f"it is not ready: {why}"
        left = [one for one in self._holding.holds.all if one.name != hold.name]
        with self._holding.lock:
            try:
                if not problem:
                    self._holding.file.save(left)
            except HoldError as error:
                problem = str(error)
            if problem:
                self._holding.progress[hold.name] = Progress()
            else:
                self._holding.set(left)
        if problem:
            self._holding.waiter.poke()
            raise HoldError(f"{hold.name} stays held: {problem}")
        self._holding.report("hold released", hold)
        self._holding.changed()
        return {"holds": [self._holding.described(hold)]}

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


def _check_owner(now: Hold, new: Hold) -> None:
    """Refuse a hold that would disturb a repair, or the work of whoever holds it for a reason.

    The reason is what tells two programs from each other.
    """
    if (now.then or new.then) and now.reason != new.reason:
        advice = "wait for its end, or release it first"
        raise HoldError(f"{now.name} is held already, {now.reason!r}: {advice}")
