"""Log a lasting problem when it begins and when it changes, and not at each check.

``configure`` is for commands of plugins: ``deviceplugin.main`` does it for a plugin.
"""

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Any, Final

from deviceplugin._platform.log_lines import configure

__all__ = ["Problems", "configure", "few", "shape"]

_MAYBE_VARYING: Final = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)
"""Matches numbers, addresses and random names if there is a digit in it."""
_COMPARED: Final = 1000
"""Characters of a message that are compared. What comes after them makes no difference."""
_MOST_SHAPES: Final = 8
"""Different messages about one subject that are logged at once."""
_FIRST_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 3600.0
_MORE: Final = "more"
"""The subject of the message that counts the rest of a list."""
_MANY: Final = 10
"""Problems of one list that are logged one by one; more get one line."""


def shape(text: str) -> str:
    """Return ``text`` without its numbers, addresses and random names, which may vary by chance.

    Messages that differ only in these have the same shape.
    """

    def masked(found: re.Match[str]) -> str:
        return "#" if any(map(str.isdigit, found[0])) else found[0]

    return _MAYBE_VARYING.sub(masked, text[:_COMPARED])


def few(texts: Iterable[str], most: int, comma: str = ", ") -> str:
    """Return ``texts`` for a message: the first ``most``, and how many more there are."""
    every = [*texts]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return comma.join(every[:most]) + more


class _Subject:
    """What has been logged about one subject while its problem lasts."""

    __slots__ = ("_last", "_pause", "_quiet_until", "_shapes", "seen")
    # There is one for each unhealthy device.

    def __init__(self) -> None:
        self.seen = 0.0
        """When it was last reported."""
        self._last: str | None = None
        self._shapes: set[str] = set()
        self._quiet_until = 0.0
        self._pause = _FIRST_PAUSE

    def is_news(self, text: str, now: float) -> bool:
        """Return whether to log ``text``. If so, it counts as logged."""
        self.seen = now
        if text == self._last:
            return False
        form = shape(text)
        if form not in self._shapes and len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(form)
        elif now < self._quiet_until:
            return False
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._last, self._quiet_until = text, now + self._pause
        return True


class Problems:
    """Logs a problem when it begins, and again when it changes or comes back. Thread-safe.

    Call ``say`` each time that the problem is seen, and ``over`` when it is gone. A problem has a
    subject, such as the id of a device, and a message, which is its event with all fields. A new
    message is logged at once. A message waits if it came before, if it differs from an earlier one
    only in numbers, addresses or random names, or if there are too many. The wait is a minute and
    doubles up to an hour. So a subject is logged some 40 times a day at most, whatever a driver
    puts into its messages.

    Args:
        log: The logger.
        level: A level of ``logging``.
        clock: Returns monotonic seconds.
        lasts: Seconds after which a problem that is not reported again is over by itself.
    """

    def __init__(
        self,
        log: logging.Logger,
        level: int = logging.WARNING,
        clock: Callable[[], float] = time.monotonic,
        *,
        lasts: float = math.inf,
    ) -> None:
        self._log = log
        self._level = level
        self._clock = clock
        self._lasts = lasts
        self._lock = Lock()
        self._subjects: dict[str, _Subject] = {}
        self._assigned: dict[str, str] = {}
        """The subject of each problem of the last list."""
        self._numbers = count()

    def say(
        self, subject: str, event: str, /, *, cause: BaseException | None = None, **fields: Any
    ) -> bool:
        """Log ``event`` with its ``fields`` if it is news about ``subject``; return whether it was.

        With ``cause``, its traceback is logged too. The names of fields must be valid in ``extra``
        of ``logging``.
        """
        if not self.is_news(subject, f"{event} {sorted(fields.items())}"):
            return False
        self._log.log(self._level, event, extra=fields, exc_info=cause)
        return True

    def say_all(self, event: str, problems: Sequence[str], /, **fields: Any) -> None:
        """Log ``event`` for each of ``problems`` that is news, as its field ``problem``.

        ``problems`` are all that there are now: every other subject is over. If a problem is
        replaced by a similar one, such as a message that counts seconds, it is the same problem. Of
        more than ten, the first ten are logged, and the number of the others. For one thread at a
        time.
        """
        shown = list(dict.fromkeys(problems))[:_MANY]
        for problem, subject in self._assign(shown).items():
            self.say(subject, event, problem=problem, **fields)
        if more := len(set(problems)) - len(shown):
            self.say(_MORE, event, problem=f"{more} more", **fields)
        self.keep({*self._assigned.values(), *([_MORE] if more else [])})

    def _assign(self, problems: Sequence[str]) -> Mapping[str, str]:
        """Return the subject of each of ``problems``: its own, or that of a similar one now gone.

        So a new problem is logged at once, and one whose message merely varies is not.
        """
        with self._lock:
            before, free = self._assigned, defaultdict[str, list[str]](list)
            for problem in before.keys() - set(problems):
                free[shape(problem)].append(before[problem])
            self._assigned = {}
            for problem in problems:
                alike = free[shape(problem)] if problem not in before else [before[problem]]
                self._assigned[problem] = alike.pop() if alike else f"problem {next(self._numbers)}"
            return self._assigned

    def is_news(self, subject: str, text: str) -> bool:
        """Return whether the caller should log ``text`` about ``subject`` now.

        If so, it counts as logged.
        """
        now = self._clock()
        with self._lock:
            if self._lasts < math.inf:
                lasting = {
                    k: one for k, one in self._subjects.items() if now - one.seen < self._lasts
                }
                self._subjects = lasting
            return self._subjects.setdefault(subject, _Subject()).is_news(text, now)

    def over(self, subject: str) -> bool:
        """Forget ``subject``; return whether anything was logged about it.

        If so, the caller may want to log that the problem is over.
        """
        with self._lock:
            return self._subjects.pop(subject, None) is not None

    def keep(self, subjects: Container[str]) -> None:
        """Forget all but ``subjects``."""
        with self._lock:
            kept = {key: one for key, one in self._subjects.items() if key in subjects}
            self._subjects = kept
