import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deviceplugin._platform import log_lines as _log

log = logging.getLogger("tests.log")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _root_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Configuring takes the handlers from the root logger: give it none, and then its own."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    monkeypatch.setitem(os.environ, "GRPC_VERBOSITY", "ERROR")
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)


def logged(form: str, event: str = "seen", **fields: Any) -> list[str]:
    """Return the lines of one event, as JSON or as text."""
    stream = io.StringIO()
    _log.configure("info", form, stream)
    log.warning(event, extra=fields)
    return stream.getvalue().splitlines()


def logged_as_json(**fields: Any) -> dict[str, Any]:
    (line,) = logged("json", **fields)
    decoded: dict[str, Any] = json.loads(line)
    return decoded


def logged_exception(form: str) -> list[str]:
    """Return the lines that tell of an exception."""
    stream = io.StringIO()
    _log.configure("info", form, stream)
    try:
        raise ValueError("odd")  # noqa: TRY301
    except ValueError:
        log.exception("failed")
    return stream.getvalue().splitlines()


def test_a_record_in_json_has_its_time_level_event_and_fields() -> None:
    record = logged_as_json(resource="x.io/dev", count=2, sick=None)
    moment = datetime.fromisoformat(record.pop("time"))
    assert abs(datetime.now(UTC) - moment).total_seconds() < 5
    assert {
        "level": "warning",
        "event": "seen",
        "resource": "x.io/dev",
        "count": 2,
        "sick": None,
    } == record


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Path("/dev/a"), "/dev/a"),
        (b"\xff", "b'\\xff'"),
        ("\udcff", "\udcff"),
        ("a\nb", "a\nb"),
        ({1: Path("/a")}, {"1": "/a"}),
        ({("a", 1): 2}, "{('a', 1): 2}"),
        (float("nan"), "nan"),
        (CIRCLE, "[[...]]"),
    ],
)
def test_a_value_that_json_does_not_know_is_written_as_text(value: object, written: object) -> None:
    assert written == logged_as_json(value=value)["value"]


def test_an_exception_stays_on_its_line_in_json_and_follows_it_for_people() -> None:
    (line,) = logged_exception("json")
    traceback = json.loads(line)["traceback"].splitlines()
    lines = logged_exception("text")
    assert lines[0].endswith("ERROR   failed")
    assert ("Traceback (most recent call last):", "ValueError: odd") == (lines[1], lines[-1])
    assert traceback == lines[1:]


def test_a_record_for_people_is_a_line_with_its_fields() -> None:
    (line,) = logged("text", resource="x.io/dev", reason="it is gone", count=2)
    time, rest = line.split(" ", 1)
    assert 'WARNING seen resource=x.io/dev reason="it is gone" count=2' == rest
    assert time == datetime.strptime(time, "%H:%M:%S.%f").strftime("%H:%M:%S.%f")[:-3]  # noqa: DTZ007


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("", '""'),
        ("/dev/a:1", "/dev/a:1"),
        ("é", "é"),
        ("a b", '"a b"'),
        ("a\nb", '"a\\nb"'),
        ("a\x1b[31mb", '"a\\u001b[31mb"'),
        ('a"b', '"a\\"b"'),
        ("a=b", "a=b"),
        (Path("/dev/a"), "/dev/a"),
        (b"\xff", "b'\\xff'"),
    ],
)
def test_a_value_for_people_is_quoted_where_it_could_be_misread(
    value: object, written: str
) -> None:
    (line,) = logged("text", value=value)
    assert line.endswith(f" value={written}")


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_only_what_is_severe_enough_is_logged(level: str) -> None:
    levels = ["debug", "info", "warning", "error"]
    stream = io.StringIO()
    _log.configure(level, "json", stream)
    for severity in levels:
        log.log(logging.getLevelName(severity.upper()), severity)
    logged = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert levels[levels.index(level) :] == logged


def test_the_form_follows_the_stream_where_it_is_not_given() -> None:
    terminal, file = Terminal(), io.StringIO()
    _log.configure("info", "auto", terminal)
    log.warning("seen")
    _log.configure("info", "auto", file)
    log.warning("seen")
    assert terminal.getvalue().endswith("WARNING seen\n")
    assert "seen" == json.loads(file.getvalue())["event"]


def test_the_log_goes_to_standard_error_and_the_last_configuration_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    _log.configure("info", "json", first)
    monkeypatch.setattr(sys, "stderr", second)
    _log.configure("info", "json")
    log.warning("seen")
    (line,) = second.getvalue().splitlines()
    assert ("", "seen") == (first.getvalue(), json.loads(line)["event"])
