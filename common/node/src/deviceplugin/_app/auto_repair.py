"""Holding unhealthy devices for their repair, if a setting names the cause."""

import logging
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from deviceplugin._app import repairs
from deviceplugin._app.hold_requests import Requests
from deviceplugin._app.holding import Holding
from deviceplugin._attribution.holds import MOST, Hold, identity
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._discovery.retention import CLOSED, GONE, NOT_CHECKED
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device

log = logging.getLogger(__name__)

ANY: Final = "any"
AUTOMATIC: Final = "auto-repair: "
"""What the reason of a hold begins with that nobody asked for but the setting."""
_NOT_ANY: Final = {CLOSED, GONE, NOT_CHECKED}
"""Causes of the framework, which no reset ends."""
_DAY: Final = 86400.0
_DOUBLED: Final = 10
"""Times after which a rest is the longest."""
_MOST: Final = MOST // 2
"""Holds of the setting at a time: the rest is for people."""


class AutoRepair:
    """Asks for the repair of one unhealthy device at a time that nobody uses. For one thread."""

    def __init__(
        self, holding: Holding, requests: Requests, causes: Collection[str], tries: int
    ) -> None:
        self._holding = holding
        self._requests = requests
        self._causes = frozenset(causes)
        self._tries = tries
        self._begun: dict[frozenset[str], list[float]] = defaultdict(list)
        """When repairs of a piece of hardware began, in monotonic seconds."""
        self._problems = Problems(log)

    def hold(self) -> None:
        """Hold an unhealthy device that nobody uses, if the setting names its cause."""
        holding = self._holding
        own = [one for one in holding.holds.all if one.reason.startswith(AUTOMATIC)]
        if len(own) >= _MOST or any(self._is_active(one) for one in own):
            return
        there = holding.there()
        held = {one.key for hold in holding.holds.all for one in holding.holds.members(hold)}
        sick = [key for key, (_, one) in there.items() if self._is_named(one) and key not in held]
        parts: dict[frozenset[str], list[Key]] = defaultdict(list)
        for key, (_, device) in there.items() if sick else ():
            parts[identity(key[0], device)].append(key)
        for key in sick:
            thing = identity(key[0], there[key][1])
            # Whoever has a part of it keeps that.
            is_free = holding.ownership.users(parts[thing]) == []
            if is_free and self._is_due(thing) and self._hold(*key, thing, there[key][1]):
                return

    def _hold(self, resource: str, id_: str, thing: frozenset[str], device: Device) -> bool:
        self._begun[thing].append(time.monotonic())
        reason = _line(f"{AUTOMATIC}{device.health.reason}")
        request = {"do": "hold", "device": id_, "resource": resource, "then": "release"}
        try:
            self._requests.answer({**request, "reason": reason})
        except DevicePluginError as error:
            self._problems.say(id_, "device not repaired", device=id_, error=str(error))
            return False
        return True

    def _is_active(self, hold: Hold) -> bool:
        """Return whether a repair is under way or about to be, and has not failed."""
        return hold.name in self._holding.kept or hold.name not in self._holding.outcomes

    def _is_named(self, device: Device) -> bool:
        cause = device.health.cause
        by_any = ANY in self._causes and cause not in _NOT_ANY
        return not device.health and (by_any or cause in self._causes)

    def _is_due(self, thing: frozenset[str]) -> bool:
        now = time.monotonic()
        self._begun[thing] = recent = [at for at in self._begun[thing] if at > now - _DAY]
        rest = min(repairs.FIRST_REST * 2 ** min(len(recent) - 1, _DOUBLED), repairs.LONGEST_REST)
        return not recent or (len(recent) < self._tries and now >= recent[-1] + rest)


def _line(text: str) -> str:
    """Return ``text`` as the reason of a hold can be."""
    return "".join(one if one.isprintable() else " " for one in text)[:256]
