"""How tests wait: for what they want to see, and for nothing longer than a busy machine needs."""

from collections.abc import Callable
from typing import Final, TypeVar

from deviceplugin._platform.waiting import Waiter

_T = TypeVar("_T")

PATIENCE: Final = 90.0
"""Seconds that a process, a thread or a call may take on a busy machine, which is late with all.

Whoever waits longer loses nothing, since a wait ends as soon as there is what was waited for; it is
below the limit of a test, so that a failure says what that was.
"""


def eventually(
    condition: Callable[[], _T],
    what: str | Callable[[], str] = "a condition",
    *,
    timeout: float = PATIENCE,
    every: float = 0.01,
) -> _T:
    """Wait for what nothing announces, looking every ``every`` seconds; return what was found.

    ``what`` says what was waited for, or is called to say so once that was in vain.
    """
    found = Waiter().until(condition, timeout, every=every)
    assert found, f"waited {timeout:g} s for {what if isinstance(what, str) else what()}"
    return found
