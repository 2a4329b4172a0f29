"""Writing log records as lines, as JSON or as text: an event and its fields."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from typing_extensions import override

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all records of at least ``level`` to ``stream`` (standard error).

    ``form`` is ``json``, ``text``, or ``auto``: text on a terminal and JSON elsewhere.
    """
    stream = stream or sys.stderr
    # gRPC's own lines are not JSON. What matters in them is also raised as errors.
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
        except (TypeError, ValueError):  # NaN, a key that is not a string, or a circular reference
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
