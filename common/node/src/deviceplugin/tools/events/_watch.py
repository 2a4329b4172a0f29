"""Comparing the current state with what has been reported: the difference is the news.

There is no queue. News that could not be reported in time is computed again from the current state.
So a recovered device is not reported, and a flapping one is reported occasionally. The devices of
the node limit the memory, and the rate limit limits the Events.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Bucket, Waiter
from deviceplugin.apiserver import (
    ApiServer,
    ApiServerError,
    ConflictError,
    ForbiddenError,
    InvalidError,
)
from deviceplugin.kit.log import Problems
from deviceplugin.tools.events._notice import Fact, Notice

log = logging.getLogger(__name__)

MAX_SUBJECTS: Final = 50_000
"""Most devices and resources that are watched; further ones are skipped."""
OLD: Final = timedelta(minutes=5)
"""A state that was this old at the start counts as reported by an earlier process."""
SETTLE: Final = 30.0
"""Seconds before a lost registration is reported; a restart of the kubelet takes less."""
FORGET: Final = 600.0
"""Seconds after which a device that has disappeared is forgotten."""
_NEVER: Final = float("-inf")

_Key = tuple[object, ...]
_ADVICE: Final = {
    401: "is the token of the component events mounted?",
    403: "apply the ClusterRole and its binding of the component events",
}


BURST: Final = 10
"""Most Events in a row."""
REFILL: Final = 60.0
"""Seconds until one more Event is allowed."""
FIRST_WAIT: Final = 1.0
LAST_WAIT: Final = 300.0
"""Most seconds between attempts: they double from the first to the last, and vary at random."""
_IDLE: Final = 3600.0
"""Seconds between wake-ups without news."""


@dataclass(slots=True)
class _Subject:
    fact: Fact
    reported: str
    """The state that was last reported; at first, good."""
    noticed: float
    """The time of its last change."""
    seen: float
    changes: int = 0
    """Number of changes since the last report."""
    last: dict[str, float] = field(default_factory=dict)
    """The time of the last report of each state."""


class Watch:
    """All devices and resources, and what has been reported about them. Thread-safe.

    Between two Events of one device with the same state are ``quiet`` seconds at least. With
    ``all_news``, every bad state is news at once, however old it is.
    """

    def __init__(self, quiet: float, *, all_news: bool = False) -> None:
        self._quiet = quiet
        self._settle = 0.0 if all_news else SETTLE
        self._all_news = all_news
        self._observed_at = _NEVER
        self._subjects: dict[_Key, _Subject] = {}
        self._lock = threading.Lock()

    def observe(self, facts: Iterable[Fact], now: float, at: datetime | None = None) -> int:
        """Update the state; return how many facts were skipped because there are too many.

        ``facts`` are the complete state at ``now``, in monotonic seconds, which is the date ``at``.
        """
        at = at or datetime.now(UTC)
        with self._lock:
            first = self._observed_at == _NEVER
            self._observed_at = now
            skipped = sum(not self._update(fact, now, at, first=first) for fact in facts)
            for key in [k for k, s in self._subjects.items() if now - s.seen > FORGET]:
                del self._subjects[key]
        return skipped

    def _update(self, fact: Fact, now: float, at: datetime, *, first: bool) -> bool:
        """Update one fact; return False if there are too many."""
        key = _key(fact)
        subject = self._subjects.get(key)
        if not fact.since:  # it is needed to recognise the same news
            same = subject is not None and subject.fact.state == fact.state
            since = subject.fact.since if subject and same else at.isoformat(timespec="seconds")
            fact = fact._replace(since=since)
        if subject is None:
            if len(self._subjects) >= MAX_SUBJECTS:
                return False
            news = fact.state != "good"
            known = news and first and not self._all_news and _is_old(fact, at)
            self._subjects[key] = _Subject(fact, fact.state if known else "good", now, now, news)
            return True
        if fact.state != subject.fact.state:
            subject.noticed = now
            subject.changes += 1
        subject.fact, subject.seen = fact, now
        return True

    def news(self, now: float) -> Notice | None:
        """Return the news that has waited longest, with all similar news; None without news."""
        with self._lock:
            due = [one for one in self._subjects.values() if self._is_due(one, now)]
            if not due:
                return None
            oldest = _group(min(due, key=lambda one: one.noticed))
            return self._notice([one for one in due if _group(one) == oldest])

    def _is_due(self, subject: _Subject, now: float) -> bool:
        state = subject.fact.state
        return (
            state != subject.reported
            and subject.seen == self._observed_at
            and (bool(subject.fact.device) or now - subject.noticed >= self._settle)
            and now - subject.last.get(state, _NEVER) >= self._quiet
        )

    def _notice(self, chosen: Sequence[_Subject]) -> Notice:
        facts = sorted((one.fact for one in chosen), key=lambda fact: natural_key(fact.device))
        present = [
            one.fact.good
            for one in self._subjects.values()
            if one.seen == self._observed_at and one.fact.device and not one.fact.pod
            if one.fact.resource == facts[0].resource
        ]
        return Notice(
            facts=tuple(facts),
            unhealthy=present.count(False),
            devices=len(present),
            changes=sum(one.changes for one in chosen),
        )

    def reported(self, notice: Notice, now: float) -> None:
        """Record that ``notice`` has been reported."""
        with self._lock:
            for fact in notice.facts:
                subject = self._subjects.get(_key(fact))
                if subject is not None:
                    subject.reported = notice.state
                    subject.last[notice.state] = now
                    subject.changes = int(subject.fact.state != notice.state)


def _key(fact: Fact) -> _Key:
    return fact.resource, fact.device, fact.pod


def _group(subject: _Subject) -> _Key:
    """Return what is equal for changes that share an Event."""
    fact = subject.fact
    return fact.resource, bool(fact.device), fact.state, fact.pod


def _is_old(fact: Fact, at: datetime) -> bool:
    try:
        return at - datetime.fromisoformat(fact.since) > OLD
    except (ValueError, TypeError):  # not a date, or one without a time zone
        return False


def create_event(api: ApiServer, event: dict[str, Any]) -> None:
    """Create ``event``, unless one of that name exists."""
    try:
        api.create(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
    except ConflictError:
        return
    except ForbiddenError as error:
        text = f"{error}; {_ADVICE[error.status]}"
        raise ForbiddenError(text, status=error.status, after=error.after) from None


@dataclass(eq=False, repr=False)
class Sender:
    """Sends the news of ``watch`` by ``post``. ``run`` is its thread."""

    watch: Watch
    post: Callable[[Notice], None]
    """Sends a notice. It raises ``ApiServerError``, or ``InvalidError`` if it never can."""
    clock: Clock = MONOTONIC
    """The clock that ``watch`` uses too."""

    def __post_init__(self) -> None:
        self._waiter = Waiter(self.clock)
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT)
        self._bucket = Bucket(BURST, REFILL, self.clock)
        self._not_before = self.clock.now()
        self._problems = Problems(log)
        self.refused = 0
        """Number of Events that the cluster rejected."""

    def run(self) -> None:
        while not self._waiter.is_over():
            self._waiter.until_poked(self.step())

    def wake(self) -> None:
        self._waiter.poke()

    def stop(self) -> None:
        """Make ``run`` return, after a request that is under way."""
        self._waiter.end()

    def step(self) -> float:
        """Create at most one Event, and return the seconds until the next step."""
        now = self.clock.now()
        if now < self._not_before:
            return self._not_before - now
        if wait := self._bucket.wait():
            return wait
        notice = self.watch.news(now)
        return _IDLE if notice is None else self._send(notice)

    def _send(self, notice: Notice) -> float:
        try:
            self.post(notice)
        except InvalidError as error:
            self.refused += 1
            log.warning("event rejected", extra={"error": str(error), "text": notice.message})
        except ApiServerError as error:
            wait = max(self._backoff.next_wait(), error.after)
            self._not_before = self.clock.now() + wait
            self._problems.say("cluster", "event creation failed, retrying", error=str(error))
            return wait
        else:
            if self._problems.over("cluster"):
                log.info("event creation recovered")
            log.info("event created", extra={"reason": notice.reason, "text": notice.message})
        self._backoff.reset()
        self._bucket.take()
        self.watch.reported(notice, self.clock.now())
        return 0.0
