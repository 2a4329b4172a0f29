"""Repairing what is held: a reset once it is let go, a check by discovery, perhaps a release."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from threading import Lock, Thread
from typing import Final

from deviceplugin._app.hold_progress import NOT_REPAIRED, RESETTING, UNKNOWN, Outcome
from deviceplugin._app.hold_requests import Requests
from deviceplugin._app.holding import Holding
from deviceplugin._attribution.holds import Hold, HoldError, identity
from deviceplugin._discovery.loop import Discovery
from deviceplugin._platform import hooks
from deviceplugin._platform.hooks import reason_of
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

FIRST_REST: Final = 30.0
"""Seconds after the first reset that failed until the next; twice as many after each."""
CHECK_TIMEOUT: Final = 300.0
"""Seconds within which discovery finds the devices of a hold, healthy, after their reset."""
_POLL: Final = 0.5
LONGEST_REST: Final = 3600.0
_SHOWN: Final = 5


class Repairs:
    """Resets what is held and is to be reset, one hold at a time. ``begin`` is for one thread."""

    def __init__(self, holding: Holding, requests: Requests, tries: int) -> None:
        self._holding = holding
        self._requests = requests
        self._tries = tries
        self._thread: Thread | None = None
        self._problems = Problems(log)

    def begin(self) -> None:
        """Begin the repair that is due, if one is and none is under way."""
        if self._thread is not None and self._thread.is_alive():
            return
        for hold in self._holding.holds.all:
            if self._is_due(hold):
                thread = Thread(target=self._repair, args=(hold,), name="repair", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the node has no thread left
                    return
                self._thread = thread
                return

    def _is_due(self, hold: Hold) -> bool:
        over = hold.name in self._holding.kept or (hold.was_reset and hold.then == "reset")
        if not hold.then or over or not self._holding.is_let_go(hold):
            return False
        if self._gave_up(hold):
            text = f"{NOT_REPAIRED}{hold.tries} resets were begun"
            self._holding.outcomes.setdefault(hold.name, Outcome(text, math.inf))
            return False
        outcome = self._holding.outcomes.get(hold.name)
        return outcome is None or time.monotonic() >= outcome.not_before

    def _gave_up(self, hold: Hold) -> bool:
        return hold.tries >= self._tries and not hold.was_reset

    # In a thread of its own.

    def _repair(self, hold: Hold) -> None:
        if not self._holding.keep(hold, hold):
            return  # it was released meanwhile
        why, hangs = "", False
        try:
            why = hooks.call(self._attempt, hold.name)
        except DevicePluginError as error:  # such as a full disk
            why, hangs = reason_of(error), isinstance(error, _HangsError)
        if not hangs:
            self._end(hold)
        if why and not self._holding.repairing.is_over():
            self._note(hold.name, why)

    def _attempt(self, name: str) -> str:
        """Do what is left to be done for a hold; return why that cannot be done."""
        hold = self._holding.change(name)
        if not self._holding.is_let_go(hold):
            return ""  # more is known of it now, as after a start: it is let go again first
        if not hold.was_reset and (why := self._reset(hold)):
            return why
        if hold.then == "release":
            self._release(hold)
        return ""

    def _end(self, hold: Hold) -> None:
        self._holding.keep_no_more(hold)
        self._holding.changed()

    def _note(self, name: str, why: str) -> None:
        """Remember that a repair failed, and when to try again."""
        hold = self._holding.named(name)
        if hold is None:
            return
        before = self._holding.outcomes.get(name)
        rest = before.rest if before and before.rest else FIRST_REST
        if self._gave_up(hold):
            outcome = Outcome(f"{NOT_REPAIRED}{why}", math.inf)
        else:
            text = f"not repaired, tried again in {rest:g} s: {why}"
            outcome = Outcome(text, time.monotonic() + rest, min(2 * rest, LONGEST_REST))
        self._holding.outcomes[name] = outcome
        tries = hold.tries
        if self._problems.say(name, "device not repaired", device=name, error=why, tries=tries):
            self._holding.metrics.events.add("device not repaired", device=name, detail=why)

    def _reset(self, hold: Hold) -> str:
        """Reset the devices of ``hold``; return why that failed or could not be tried."""
        reached = self._requests.reached(hold)
        if why := self._obstacle(hold) or self._unheld(hold, reached):
            return why
        before = self._holding.outcomes.get(hold.name, Outcome(RESETTING))
        self._holding.change(hold.name, tries=hold.tries + 1)  # on the disk before it happens
        self._holding.outcomes[hold.name] = replace(before, text=RESETTING)
        for each, devices in self._holding.owned(hold):
            if why := self._call(hold, each, devices):
                return why
        others = self._holding.holds.others(hold, reached)
        for one in [hold, *(one for one in others if one.then and one.name in self._holding.kept)]:
            self._holding.outcomes.pop(one.name, None)
            self._holding.report("device reset", self._holding.change(one.name, was_reset=True))
        return ""

    def _call(self, hold: Hold, each: Discovery, devices: Sequence[Device]) -> str:
        reset = _Reset(each.plugin, lambda: self._end(hold))
        limit = each.plugin.reset_timeout * len(hold.things)
        try:
            self._holding.hooks[each.name].call("reset", reset, devices, timeout=limit)
        except DevicePluginError as error:
            if reset.give_up():
                raise _HangsError(reason_of(error)) from error
            return reason_of(error)
        return ""

    def _obstacle(self, hold: Hold) -> str:
        """Return why the devices of ``hold`` cannot be reset now. It cannot be released now."""
        members, there = self._holding.holds.members(hold), self._holding.there()
        for one in members:
            _, now = there.get(one.key, ("", one.device))
            if identity(one.resource, now) != identity(one.resource, one.device):
                return f"{now.id} is other hardware now"
        users = self._holding.ownership.users([one.key for one in members])
        if users is None or users:
            return f"used by {', '.join(users[:_SHOWN])}" if users else UNKNOWN
        if others := self._holding.holds.others(hold):
            return f"its hardware is held as {others[0].name} too: release that"
        return ""

    def _unheld(self, hold: Hold, reached: AbstractSet[str]) -> str:
        """Return what a reset reaches and is not let go; keep the holds of all that is."""
        holding = self._holding
        safe = {one.key for one in holding.holds.members(hold)}
        for other in holding.holds.others(hold, reached):
            if holding.keep(other, hold) and holding.is_let_go(other):
                safe |= {one.key for one in holding.holds.members(other)}
        for key, (_, device) in holding.there().items():
            if key not in safe and not reached.isdisjoint(device.hardware):
                return f"its reset reaches {device.id} of {key[0]}: hold that until it is let go"
        return ""

    def _release(self, hold: Hold) -> None:
        """Release ``hold`` if discovery finds its devices again, healthy; HoldError if not."""
        try:
            self._requests.release(hold, self._check)
        except HoldError:
            if not self._holding.repairing.is_over():
                self._holding.change(hold.name, was_reset=False)
            raise

    def _check(self, hold: Hold) -> str:
        """Have the devices discovered, by discoveries that begin from now on."""
        holds, waiter = self._holding.holds, self._holding.repairing
        owners = [each for each, _ in self._holding.owned(hold)]
        # One may be under way, and have begun before.
        until = {each.name: holds.discovered[each.name] + 2 for each in owners}
        problem = ""

        def is_over() -> bool:
            nonlocal problem
            problem = holds.problem(hold)
            for each in owners:
                if holds.discovered[each.name] < until[each.name]:
                    problem = each.failure or "its devices were not discovered again"
                    each.rediscover()
            return not problem

        return "" if waiter.until(is_over, CHECK_TIMEOUT, every=_POLL) else problem


class _HangsError(DevicePluginError):
    """A reset has not returned in time, and still runs."""


class _Reset:
    """One call of ``reset``. Once it is given up, it does not begin any more.

    ``over`` is called once it has returned after that.
    """

    def __init__(self, plugin: Plugin, over: Callable[[], None]) -> None:
        self._plugin = plugin
        self._over = over
        self._lock = Lock()
        self._runs = self._is_given_up = False

    def __call__(self, devices: Sequence[Device]) -> None:
        with self._lock:
            if self._is_given_up:
                return
            self._runs = True
        try:
            self._plugin.reset(devices)
        finally:
            with self._lock:
                self._runs, is_late = False, self._is_given_up
            if is_late:
                self._over()

    def give_up(self) -> bool:
        """Return whether it still runs."""
        with self._lock:
            self._is_given_up = True
            return self._runs
