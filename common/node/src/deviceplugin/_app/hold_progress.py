"""How far the plugins are with what is held."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from deviceplugin._attribution.poll_schedule import Key

FIRST_REST: Final = 1.0
"""Seconds until the second attempt to let go of a device."""
UNKNOWN: Final = "waiting: not known what pods have"
LET_GO: Final = "let go"
RELEASING: Final = "being released"
RESETTING: Final = "resetting"
RESET: Final = "reset"
NOT_REPAIRED: Final = "not repaired: "
"""What the state of a hold begins with whose reset is not tried again."""


@dataclass(slots=True)
class Progress:
    """How far the plugins are with one hold."""

    in_use: bool = False
    """Whether plugins may have the devices open. Not after a restart: they have never opened them.
    """
    state: str = "waiting"
    done: Mapping[Key, object] = field(default_factory=dict)
    """The devices that were let go of, or tried to. Parts of the same hardware may appear later, or
    what is known of them change, such as their place."""
    rest: float = FIRST_REST
    not_before: float = 0.0

    def is_over(self, known: Mapping[Key, object]) -> bool:
        """Return whether nothing is left to be done for the devices ``known``."""
        return self.state == RELEASING or (
            self.state == LET_GO and known.items() <= self.done.items()
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the last attempt to repair what is held."""

    text: str
    not_before: float = 0.0
    """The time of the next attempt, in monotonic seconds."""
    rest: float = 0.0
    """Seconds to wait after the next attempt that fails; 0 if none has failed yet."""

    @property
    def is_final(self) -> bool:
        return self.not_before == math.inf
