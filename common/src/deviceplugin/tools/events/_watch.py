"""What is, against what has been told: the difference is the news.

There is no queue. News that could not be told in time is made anew from how things are then: what
has recovered meanwhile is not told, and what flaps is told now and then. So memory is bounded by
the devices of the node, and Events by the time.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin.tools.events._look import Fact
from deviceplugin.tools.events._notice import Notice

MAX_SUBJECTS: Final = 50_000
"""Devices and resources that are watched; those beyond are left out."""
OLD: Final = timedelta(minutes=5)
"""What was so for this long before the start has been told by the process before this one."""
SETTLE: Final = 30.0
"""Seconds that a registration is lost before it is told; a restart of the kubelet takes less."""
FORGET: Final = 600.0
"""Seconds after which a device that is not there any more is forgotten."""
_NEVER: Final = float("-inf")

_Key = tuple[str, str]


@dataclass(slots=True)
class _Subject:
    fact: Fact
    told: bool
    """What was last told of it; at first, that it is well."""
    noticed: float
    """When it last changed."""
    seen: float
    changes: int = 0
    """Since it was last told of."""
    last: dict[bool, float] = field(default_factory=dict)
    """When each of the two was last told."""


class Watch:
    """All devices and resources, and what has been told of them. Thread-safe.

    Args:
        quiet: Seconds between two Events of one device that say the same.
        all_news: Whether all that is not well is news at once, however old it is.
    """

    def __init__(self, quiet: float, *, all_news: bool = False) -> None:
        self._quiet = quiet
        self._settle = 0.0 if all_news else SETTLE
        self._all_news = all_news
        self._looked = _NEVER
        self._subjects: dict[_Key, _Subject] = {}
        self._lock = threading.Lock()

    def observe(self, facts: Iterable[Fact], now: float, at: datetime | None = None) -> int:
        """Take in what a plugin says; return how many facts are left out because there is no room.

        Args:
            facts: All that there is.
            now: Seconds of a clock that never jumps.
            at: The same moment in real time.
        """
        at = at or datetime.now(UTC)
        with self._lock:
            first = self._looked == _NEVER
            self._looked = now
            left_out = sum(not self._take(fact, now, at, first=first) for fact in facts)
            for key in [k for k, s in self._subjects.items() if now - s.seen > FORGET]:
                del self._subjects[key]
        return left_out

    def _take(self, fact: Fact, now: float, at: datetime, *, first: bool) -> bool:
        """Take ``fact`` in, and tell whether there is room for it."""
        key = fact.resource, fact.device
        subject = self._subjects.get(key)
        if not fact.since:  # by which the same news is known again
            same = subject is not None and subject.fact.good == fact.good
            since = subject.fact.since if subject and same else at.isoformat(timespec="seconds")
            fact = fact._replace(since=since)
        if subject is None:
            if len(self._subjects) >= MAX_SUBJECTS:
                return False
            known = not fact.good and first and not self._all_news and _is_old(fact, at)
            self._subjects[key] = _Subject(fact, not known, now, now, int(not fact.good))
            return True
        if fact.good != subject.fact.good:
            subject.noticed = now
            subject.changes += 1
        subject.fact, subject.seen = fact, now
        return True

    def news(self, now: float) -> Notice | None:
        """Return what has waited longest to be told, with all like it; None if nothing is new."""
        with self._lock:
            groups: dict[tuple[str, bool, bool], list[_Subject]] = defaultdict(list)
            for subject in self._subjects.values():
                if self._is_due(subject, now):
                    fact = subject.fact
                    groups[fact.resource, bool(fact.device), fact.good].append(subject)
            if not groups:
                return None
            chosen = min(groups.values(), key=lambda group: min(one.noticed for one in group))
            return self._notice(chosen)

    def _is_due(self, subject: _Subject, now: float) -> bool:
        good = subject.fact.good
        return (
            good != subject.told
            and subject.seen == self._looked
            and (bool(subject.fact.device) or now - subject.noticed >= self._settle)
            and now - subject.last.get(good, _NEVER) >= self._quiet
        )

    def _notice(self, chosen: Sequence[_Subject]) -> Notice:
        facts = sorted((one.fact for one in chosen), key=lambda fact: natural_key(fact.device))
        present = [
            one.fact.good
            for one in self._subjects.values()
            if one.seen == self._looked and one.fact.device
            if one.fact.resource == facts[0].resource
        ]
        return Notice(
            good=facts[0].good,
            facts=tuple(facts),
            unhealthy=present.count(False),
            devices=len(present),
            changes=sum(one.changes for one in chosen),
        )

    def told(self, notice: Notice, now: float) -> None:
        """Take in that ``notice`` has been told, and need not be again."""
        with self._lock:
            for fact in notice.facts:
                subject = self._subjects.get((fact.resource, fact.device))
                if subject is not None:
                    subject.told = notice.good
                    subject.last[notice.good] = now
                    subject.changes = int(subject.fact.good != notice.good)


def _is_old(fact: Fact, at: datetime) -> bool:
    try:
        return at - datetime.fromisoformat(fact.since) > OLD
    except (ValueError, TypeError):  # no date, or one without a zone
        return False
