"""Log records as lines: an event and its fields, as JSON or for people."""

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from typing_extensions import override

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all records of at least ``level`` to ``stream`` (standard error).

    ``form`` is ``json``, ``text``, or ``auto``: text on a terminal and JSON elsewhere.
    """
    stream = stream or sys.stderr
    # gRPC's own lines are no JSON; what matters in them comes up as errors here.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if form == "auto":
        form = "text" if stream.isatty() else "json"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class _JsonFormatter(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):  # no number, a key that is no text, or a circle
            return json.dumps({name: str(value) for name, value in line.items()})


class _TextFormatter(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        time = _time(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        line = f"{time} {record.levelname:<7} {record.getMessage()}{fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def _quoted(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and not {" ", '"'} & set(text)
    return text if text and plain else json.dumps(text, ensure_ascii=not text.isprintable())


_MAYBE_VARYING: Final = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)
"""With a digit in it: numbers, addresses and random names."""
_COMPARED: Final = 1000
"""Characters of a text that are compared; texts that differ only behind them are alike."""
_MOST_SHAPES: Final = 8
"""Different texts about one subject that are said at once."""
_FIRST_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 3600.0


def shape(text: str) -> str:
    """Return ``text`` without what may vary by itself; equal for texts that say the same."""

    def masked(found: re.Match[str]) -> str:
        return "#" if any(map(str.isdigit, found[0])) else found[0]

    return _MAYBE_VARYING.sub(masked, text[:_COMPARED])


class _Subject:
    """What has been said about one subject for as long as it goes on."""

    __slots__ = ("_last", "_pause", "_quiet_until", "_shapes")  # one for each device that is ill

    def __init__(self) -> None:
        self._last: str | None = None
        self._shapes: set[str] = set()
        self._quiet_until = 0.0
        self._pause = _FIRST_PAUSE

    def is_news(self, text: str, now: float) -> bool:
        """Return whether ``text`` is worth saying, and take it for said if so."""
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


class Once:
    """Says a thing once for as long as it goes on. Not thread-safe by itself.

    It is said again at once when its text changes, but for texts that differ in no more than
    numbers, addresses or random names, that have been said before, or of which there are too many:
    those wait for a pause of a minute, which doubles up to an hour. So no text, whatever somebody
    puts into it, is more than some 40 lines a day.
    """

    def __init__(
        self,
        log: logging.Logger,
        level: int = logging.WARNING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._level = level
        self._clock = clock
        self._subjects: dict[str, _Subject] = {}

    def say(
        self, subject: str, event: str, *, cause: BaseException | None = None, **fields: Any
    ) -> bool:
        """Log ``event`` if it is news about ``subject``, and return whether it was.

        With ``cause`` its traceback is logged too.
        """
        if not self.is_news(subject, f"{event} {sorted(fields.items())}"):
            return False
        self._log.log(self._level, event, extra=fields, exc_info=cause)
        return True

    def is_news(self, subject: str, text: str) -> bool:
        """Return whether ``text`` is to be said about ``subject``, by whoever asks; it is then."""
        return self._subjects.setdefault(subject, _Subject()).is_news(text, self._clock())

    def over(self, subject: str) -> bool:
        """Forget ``subject``, and return whether anything had been said about it."""
        return self._subjects.pop(subject, None) is not None

    def keep(self, subjects: Container[str]) -> None:
        """Forget all but ``subjects``."""
        self._subjects = {key: kept for key, kept in self._subjects.items() if key in subjects}


class Seldom:
    """Says a thing once for as long as it goes on, however many say it. Thread-safe.

    It goes on until nobody has wanted to say it for ``pause`` seconds. Texts that differ in no more
    than numbers, addresses or random names are the same thing.
    """

    def __init__(
        self,
        log: logging.Logger,
        pause: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._lately: dict[str, float] = {}

    def say(self, event: str, **fields: Any) -> None:
        """Log ``event`` as a warning, if nobody has wanted to lately."""
        text = shape(f"{event} {sorted(fields.items())}")
        now = self._clock()
        with self._lock:
            lately = {said: at for said, at in self._lately.items() if now - at < self._pause}
            self._lately = {**lately, text: now}
        if text not in lately:
            self._log.warning(event, extra=fields)
