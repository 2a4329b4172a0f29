from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deviceplugin._config.quantities import write_duration
from deviceplugin._config.values import form_of, parse, write

LEVEL = Literal["debug", "info"]
NO_BOOLEAN = "is not one of true, yes, on, 1, false, no, off, 0"
KINDS: list[Any] = [
    *(str, int, float, bool, Path, timedelta, LEVEL),
    *(tuple[str, ...], tuple[int, ...], Sequence[timedelta]),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=5,
)
DURATIONS = st.timedeltas(timedelta(milliseconds=1), timedelta(days=36500)).map(
    lambda duration: timedelta(milliseconds=duration // timedelta(milliseconds=1))
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("0.5s", 0.5),
        ("1m30s", 90),
        ("24h", 86400),
        ("1d2h", 93600),
        ("1.5h", 5400),
        ("0s1ms", 0.001),
    ],
)
def test_durations_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert timedelta(seconds=seconds) == parse(text, timedelta)


@pytest.mark.parametrize(
    "value",
    [
        *("", "30", "s", "-1s", "0s", "0.1ms", "1 s", "1S", "1w", "1s\n", "1e3s", "\u0661s"),
        *("9" * 20 + "d", "9" * 400 + "d", "101000d"),
        *(30, 1.5, True, None, ["30s"]),
    ],
)
def test_what_is_no_duration_is_told_with_an_example(value: object) -> None:
    with pytest.raises(
        ValueError, match=r"^is not a duration above zero, such as 30s, 1m30s or 24h"
    ):
        parse(value, timedelta)


@given(DURATIONS)
def test_a_duration_comes_back_as_it_was_written(duration: timedelta) -> None:
    assert duration == parse(write_duration(duration), timedelta)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("a b", str, "a b"),
        ("", str, ""),
        (5, str, "5"),
        ("-7", int, -7),
        (7, int, 7),
        ("1.5", float, 1.5),
        (2, float, 2.0),
        ("/dev", Path, Path("/dev")),
        ("debug", LEVEL, "debug"),
        *((value, bool, True) for value in ("true", "True", "yes", "ON", "1", "t", True, 1)),
        *((value, bool, False) for value in ("false", "No", "off", "0", "F", False, 0)),
        ("a,b", tuple[str, ...], ("a", "b")),
        (" a , b ", tuple[str, ...], ("a", "b")),
        ("", tuple[str, ...], ()),
        ("a,,b,", tuple[str, ...], ("a", "b")),
        (["a", "b,c"], tuple[str, ...], ("a", "b,c")),
        ([], tuple[str, ...], ()),
        ("1,2", tuple[int, ...], (1, 2)),
        ([1, "2"], tuple[int, ...], (1, 2)),
        (["yes", False], Sequence[bool], (True, False)),
        ("/a,/b", Sequence[Path], (Path("/a"), Path("/b"))),
        ("info,debug", tuple[LEVEL, ...], ("info", "debug")),
        ("1s,2m", tuple[timedelta, ...], (timedelta(seconds=1), timedelta(minutes=2))),
        ("a, b", list[str], ("a", "b")),
        ("", timedelta | None, None),
        (None, timedelta | None, None),
        ("30s", timedelta | None, timedelta(seconds=30)),
    ],
)
def test_a_value_is_read_as_what_it_is(value: object, kind: Any, expected: object) -> None:
    found = parse(value, kind)
    assert (type(expected), expected) == (type(found), found)


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (True, str, "is not a string"),
        (None, str, "is not a string"),
        (["a"], str, "is not a string"),
        ({"a": 1}, str, "is not a string"),
        *((value, bool, NO_BOOLEAN) for value in ("", "maybe", "2", 2, None, [True], 1.0)),
        ("x", int, "is not a whole number"),
        ("", int, "is not a whole number"),
        (1.5, int, "is not a whole number"),
        (True, int, "is not a whole number"),
        (10**18, int, "has more than 18 digits"),
        (-(10**18), int, "has more than 18 digits"),
        (float("1e309"), int, "is not a whole number"),
        ("9" * 5000, int, "is not a whole number"),
        ("x", float, "is not a number"),
        ("nan", float, "is not a number"),
        (float("inf"), float, "is not a number"),
        ("dev", Path, "is not an absolute path"),
        ("", Path, "is not an absolute path"),
        ("~/dev", Path, "is not an absolute path"),
        ("loud", LEVEL, "is not one of debug, info"),
        (["debug"], LEVEL, "is not one of debug, info"),
        (None, LEVEL, "is not one of debug, info"),
        (5, tuple[int, ...], "is not a list"),
        ({"a": 1}, tuple[str, ...], "is not a list"),
        ("1,x", tuple[int, ...], "is not a whole number"),
        ([["a"]], tuple[str, ...], "is not a string"),
    ],
)
def test_a_value_of_another_kind_is_told(value: object, kind: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        parse(value, kind)


@given(ANYTHING, st.sampled_from(KINDS))
@example("9" * 400 + "d", timedelta)
def test_a_value_that_cannot_be_read_is_a_value_error_and_nothing_else(
    value: object, kind: Any
) -> None:
    with suppress(ValueError):
        write(parse(value, kind))


class Own:
    @classmethod
    def parse(cls, value: object) -> "Own":
        raise NotImplementedError


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((kind, "N") for kind in (int, float)),
        (bool, "true|false"),
        *((kind, "PATH") for kind in (Path, Path | None)),
        *((kind, "DURATION") for kind in (timedelta, timedelta | None)),
        *((kind, "debug|info") for kind in (LEVEL, LEVEL | None)),
        *((kind, "TEXT") for kind in (str, Own, Own | None, tuple[int, ...] | None)),
        *((kind, "TEXT") for kind in (tuple[str, ...], Sequence[Path], list[int])),
        *((kind, "TEXT") for kind in (tuple[LEVEL, ...], tuple[Own, ...])),
    ],
)
def test_a_usage_text_says_of_what_kind_a_value_is(kind: Any, text: str) -> None:
    form = form_of(kind)
    assert form
    assert text == form.metavar


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a", "a"),
        (7, 7),
        (True, True),
        (Path("/dev"), "/dev"),
        (timedelta(seconds=90), "1m30s"),
        ((Path("/a"), timedelta(seconds=1)), ["/a", "1s"]),
        (timedelta(days=1), "1d"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=3661.001), "1h1m1s1ms"),
        (timedelta(0), "0s"),
    ],
)
def test_a_value_is_written_as_one_would_write_it_into_a_file(
    value: object, written: object
) -> None:
    assert written == write(value)


def test_there_are_no_settings_of_other_kinds() -> None:
    with pytest.raises(TypeError, match="a setting cannot be a <class 'complex'>"):
        parse("1j", complex)


@pytest.mark.parametrize(
    "kind",
    [
        *(dict, dict[str, int], list, tuple, set[str], bytes, complex, object, Any),
        *(int | str, int | str | None, Literal[1, 2], tuple[dict[str, str], ...]),
        *(dict[str, int] | None, Callable[[], int]),
    ],
)
def test_kinds_of_settings_that_there_cannot_be(kind: object) -> None:
    assert not form_of(kind)
