"""What an operator asks for: to hold devices, to release them, and to list what is held."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from deviceplugin._app.holding import RELEASING, Holding, Progress
from deviceplugin._attribution.holds import MOST, Hold, HoldError, make

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
                return self._hold(hold, dry_run=bool(request.get("dry_run")))
            case "release":
                return self._release(name, dry_run=bool(request.get("dry_run")))
            case other:
                raise HoldError(f"{other!r} is not list, hold or release")

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
                hold = replace(same[0], reason=hold.reason, devices=devices, by_attribute=every)
            if not dry_run:
                self._holding.file.save([*others, hold])
                self._holding.set([*others, hold])
        if not dry_run:
            self._holding.report("device held", hold)
            self._holding.changed()
        return {"holds": [self._holding.described(hold)], "was_held": bool(same)}

    def _release(self, name: str, *, dry_run: bool) -> Mapping[str, Any]:
        with self._holding.lock:
            hold = self._named(name)
            if dry_run:
                return {"holds": [self._holding.described(hold)]}
            self._holding.progress[hold.name] = Progress(in_use=True, state=RELEASING)
            self._holding.equip_all()
        why = self._holding.have(hold, "take_back", _TIMEOUT)
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
