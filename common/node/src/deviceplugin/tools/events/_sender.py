"""Creating Events one at a time, with a rate limit and retries."""

import logging
from collections.abc import Callable
from typing import Final

from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Bucket, Waiter
from deviceplugin.apiserver import ApiServerError, InvalidError
from deviceplugin.kit.log import Problems
from deviceplugin.tools.events._notice import Notice
from deviceplugin.tools.events._watch import Watch

log = logging.getLogger(__name__)

BURST: Final = 10
"""Most Events in a row."""
REFILL: Final = 60.0
"""Seconds until one more Event is allowed."""
FIRST_WAIT: Final = 1.0
LAST_WAIT: Final = 300.0
"""Most seconds between attempts: they double from the first to the last, and vary at random."""
_IDLE: Final = 3600.0
"""Seconds between wake-ups without news."""


class Sender:
    """Sends the news of ``watch`` by ``post``. ``run`` is its thread.

    Args:
        watch: The source of news.
        post: Sends a notice. It raises ``ApiServerError``, or ``InvalidError`` if it never can.
        clock: The clock that ``watch`` uses too.
    """

    def __init__(
        self, watch: Watch, post: Callable[[Notice], None], clock: Clock = MONOTONIC
    ) -> None:
        self._watch = watch
        self._post = post
        self._clock = clock
        self._waiter = Waiter(clock)
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT)
        self._bucket = Bucket(BURST, REFILL, clock)
        self._not_before = clock.now()
        self._problems = Problems(log)
        self.refused = 0
        """Number of Events that the cluster rejected."""

    def run(self) -> None:
        """Send news until stopped."""
        while not self._waiter.is_over():
            self._waiter.until_poked(self.step())

    def wake(self) -> None:
        """Check for news now."""
        self._waiter.poke()

    def stop(self) -> None:
        """Make ``run`` return, after a request that is under way."""
        self._waiter.end()

    def step(self) -> float:
        """Create at most one Event, and return the seconds until the next step.

        Without news it sends no request, and returns an hour.
        """
        now = self._clock.now()
        if now < self._not_before:
            return self._not_before - now
        if wait := self._bucket.wait():
            return wait
        notice = self._watch.news(now)
        return _IDLE if notice is None else self._send(notice)

    def _send(self, notice: Notice) -> float:
        try:
            self._post(notice)
        except InvalidError as error:
            self.refused += 1
            log.warning("event rejected", extra={"error": str(error), "text": notice.message})
        except ApiServerError as error:
            wait = max(self._backoff.next_wait(), error.after)
            self._not_before = self._clock.now() + wait
            self._problems.say("cluster", "event creation failed, retrying", error=str(error))
            return wait
        else:
            if self._problems.over("cluster"):
                log.info("event creation recovered")
            log.info("event created", extra={"reason": notice.reason, "text": notice.message})
        self._backoff.reset()
        self._bucket.take()
        self._watch.reported(notice, self._clock.now())
        return 0.0
