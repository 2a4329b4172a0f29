"""Tells the news, one Event at a time: not too many, and again if it fails."""

import logging
from collections.abc import Callable
from typing import Final

from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import ApiServerError, InvalidError
from deviceplugin.kit.log import Problems
from deviceplugin.tools.events._notice import Notice
from deviceplugin.tools.events._watch import Watch

log = logging.getLogger(__name__)

BURST: Final = 10
"""Events that may be created one after the other."""
REFILL: Final = 60.0
"""Seconds until there may be one more."""
FIRST_WAIT: Final = 1.0
LAST_WAIT: Final = 300.0
"""Seconds between attempts: doubled from the first to the last, less up to a half by chance."""
_IDLE: Final = 3600.0
"""Seconds between wake-ups that serve no purpose here."""


class Sender:
    """Tells what ``watch`` has to tell, by ``post``. ``run`` is its thread.

    Args:
        watch: Knows the news.
        post: Tells it; raises ``ApiServerError``, ``InvalidError`` if it never can.
        clock: The same that tells ``watch`` the time.
    """

    def __init__(
        self, watch: Watch, post: Callable[[Notice], None], clock: Clock = MONOTONIC
    ) -> None:
        self._watch = watch
        self._post = post
        self._clock = clock
        self._waiter = Waiter(clock)
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT)
        self._free = float(BURST)
        self._filled = clock.now()
        self._not_before = self._filled
        self._once = Problems(log)
        self.refused = 0
        """Events that the cluster would never take."""

    def run(self) -> None:
        """Tell the news until stopped."""
        while not self._waiter.is_over():
            self._waiter.until_poked(self.step())

    def wake(self) -> None:
        """Say that there may be news."""
        self._waiter.poke()

    def stop(self) -> None:
        """Let ``run`` return, after what is under way."""
        self._waiter.end()

    def step(self) -> float:
        """Create one Event at most, and return how many seconds there is nothing to do.

        If there is no news that is an hour, and nothing was asked of the cluster.
        """
        now = self._clock.now()
        self._refill(now)
        if now < self._not_before:
            return self._not_before - now
        if self._free < 1:
            return (1 - self._free) * REFILL
        notice = self._watch.news(now)
        return _IDLE if notice is None else self._tell(notice)

    def _refill(self, now: float) -> None:
        self._free = min(self._free + (now - self._filled) / REFILL, BURST)
        self._filled = now

    def _tell(self, notice: Notice) -> float:
        try:
            self._post(notice)
        except InvalidError as error:
            self.refused += 1
            log.warning("event rejected", extra={"error": str(error), "text": notice.message})
        except ApiServerError as error:
            wait = max(self._backoff.next_wait(), error.after)
            self._not_before = self._clock.now() + wait
            self._once.say("cluster", "event creation failed, retrying", error=str(error))
            return wait
        else:
            if self._once.over("cluster"):
                log.info("event creation recovered")
            log.info("event created", extra={"reason": notice.reason, "text": notice.message})
        self._backoff.reset()
        self._free -= 1
        self._watch.told(notice, self._clock.now())
        return 0.0
