"""Counting and logging what a discovery does not offer, such as devices that are invalid."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_MANY: Final = 10
"""Reasons that are shown one by one."""


class Omissions:
    """What discoveries of one plugin do not offer. For one thread. ``count`` sets the metric."""

    def __init__(self, count: Callable[[int], object]) -> None:
        self._count = count
        self.problems = Problems(log)
        """To log the reasons with."""
        self.reasons: Sequence[str] = ()
        """Those of the last discovery; as many messages as are logged."""

    def take(self, problems: Mapping[str, int]) -> list[str]:
        """Count the reasons of the last discovery, each with the number of things; return them."""
        self._count(sum(problems.values()))
        shown = list(problems)[:_MANY]
        more = len(problems) - len(shown)
        self.reasons = [*shown, f"{more} more"] if more else shown
        return list(problems)
