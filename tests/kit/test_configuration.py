"""Kinds of values: what they take, what they say of the rest, and their schemas."""

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from deviceplugin.errors import ConfigError
from deviceplugin.kit import configuration
from deviceplugin.kit.configuration import (
    Kind,
    Place,
    anything,
    as_argument,
    boolean,
    choice,
    duration,
    either,
    finished,
    integer,
    list_of,
    mapping_of,
    name,
    needed,
    nothing,
    number,
    of_file,
    of_text,
    path,
    read,
    reading,
    record,
    schema,
    size,
    suggestion,
    text,
)


@dataclass(frozen=True)
class Port:
    """A record."""

    name: str
    speed: int = 9600
    read_only: bool = False

    def __post_init__(self) -> None:
        if self.read_only and self.speed > 9600:
            raise ValueError(f"speed {self.speed} is too high for a port that is read only")


def _not_console(place: Place, given: Any) -> None:
    if "name" in given and given["name"].raw == "console":
        place.fault("the console is not a port")


PORT = record(
    Port,
    {"name": needed(name()), "speed": integer(1, 115200), "read-only": boolean()},
    rules=[_not_console],
).called("port")
PORTS: Kind[Any] = record(dict, {"ports": list_of(PORT, 1), "log": choice("all", "none")})

GOOD: list[tuple[Kind[Any], str, Any]] = [
    (text(), "a b", "a b"),
    (text(strip=True), "' a '", "a"),
    (text(digits=True), "1.50", "1.50"),
    (text("^[ab]+$", "of a and b"), "abba", "abba"),
    (name(), "a-1", "a-1"),
    (path(), "/dev/x", Path("/dev/x")),
    (integer(), "007", 7),
    (integer(), "0x10", 16),
    (integer(-5, 5), "-5", -5),
    (number(), "1.5", 1.5),
    (boolean(), "yes", True),
    (duration(), "1m30s", timedelta(seconds=90)),
    (duration(), "1.5h", timedelta(minutes=90)),
    (duration(), "0.0001ms", timedelta.resolution),
    (duration(zero=True), "0s", timedelta()),
    (duration(timedelta(days=1)), "24h", timedelta(days=1)),
    (size(), "512", 512),
    (size(), "'512'", 512),
    (size(), "80Gi", 80 * 1024**3),
    (size(), "1.5G", 1_500_000_000),
    (choice("all", "none"), "none", "none"),
    (list_of(integer()), "[1, 2]", (1, 2)),
    (list_of(integer(), single=True), "1", (1,)),
    (mapping_of(boolean()), "{a: yes, b: no}", {"a": True, "b": False}),
    (either(integer(), choice("all")), "all", "all"),
    (either(integer(), choice("all")), "3", 3),
    (nothing(None), "null", None),
    (anything(), "{a: [1, x]}", {"a": [1, "x"]}),
    (PORT, "{name: a, speed: 300, read-only: true}", Port("a", 300, read_only=True)),
    (PORTS, "{ports: [{name: a}], log: all}", {"ports": (Port("a"),), "log": "all"}),
]
BAD: list[tuple[Kind[Any], str, str]] = [
    (text(), "5", "5 is not a string: put it in quotes"),
    (text(), "null", "null is not a string"),
    (text(), "[a]", "a list is not a string"),
    (text("^[ab]+$", "of a and b"), "x", "'x' is not of a and b"),
    (text("^[ab]+$", "of a and b"), '"ab\\n"', r"'ab\n' is not of a and b"),
    (text(problem=lambda raw: "is odd" if raw == "x" else ""), "x", "'x' is odd"),
    (path(), "dev", "'dev' is not an absolute path"),
    (integer(1, 5), "6", "6 is not a whole number from 1 to 5"),
    (integer(), "1.5", "1.5 is not a whole number from 0"),
    (integer(), "1" + 18 * "0", "has more than 18 digits"),
    (integer(), "yes", "yes is not a whole number from 0"),
    (integer(), "9" * 5000, "99999999"),
    (number(), "x", "'x' is not a number"),
    (number(), ".inf", ".inf is not a number"),
    (number(0, 1.5), "2", "2 is not a number from 0 and up to 1.5"),
    (boolean(), "1", "1 is not true or false"),
    (duration(), "5", "5 is not a duration, such as 500ms, 30s or 1m30s"),
    (duration(), "5 s", "'5 s' is not a duration, such as 500ms, 30s or 1m30s"),
    (duration(), "0s", "'0s' is not above zero"),
    (duration(), "99999999h", "'99999999h' is longer than 100 years"),
    (duration(timedelta(days=1)), "25h", "'25h' is longer than 1d"),
    (size(), "1X", "'1X' is not a size, such as 512Ki, 80Gi or 1.5G"),
    (size(1), "0", "0 is not of at least 1 bytes"),
    (size(1, 9), "10", "10 is not from 1 to 9 bytes"),
    (choice("Device", "Mount"), "mount", "'mount' is not one of Device, Mount: did you mean 'Mou"),
    (list_of(integer(), 2), "[1]", "needs 2 items"),
    (list_of(integer()), "{}", "a mapping is not a list"),
    (list_of(text(), single=True), "{}", "a mapping is not a string, or a list"),
    (mapping_of(boolean(), least=1), "{}", "is empty"),
    (mapping_of(boolean()), "[]", "a list is not a mapping with keys"),
    (mapping_of(boolean(), lambda key: "is odd" if key == "x" else ""), "{x: yes}", "x: is odd"),
    (either(integer(), choice("all")), "[]", "a list is not a whole number from 0 or a string"),
    (either(integer(), text(), wanted="all, or how many"), "[]", "a list is not all, or how many"),
    (nothing(None), "5", "5 is not null"),
    (PORT, "{name: a, speed: 19200, read-only: true}", "speed 19200 is too high for a port that"),
    (PORT, "{name: a, x: 1}", "x: unknown key: known are name, speed, read-only"),
    (PORT, "{name: a, name: b}", "name: given twice"),
]


def is_valid(kind: Kind[Any], written: str) -> bool:
    return bool(Draft202012Validator(schema(kind, "T")).is_valid(of_text(written).plain()))


@pytest.mark.parametrize(("kind", "written", "expected"), GOOD)
def test_what_is_of_a_kind_is_taken_and_written_so(
    kind: Kind[Any], written: str, expected: object
) -> None:
    found = finished(of_text(written), kind)
    assert (type(expected), expected) == (type(found), found)
    assert is_valid(kind, written)
    if expected not in (timedelta.resolution, {"ports": (Port("a"),), "log": "all"}):
        assert expected == finished(configuration.of_plain(kind.write(expected)), kind)


BEYOND = {
    *("is odd", "is longer", "'0s' is not above", "speed 19200", "bytes"),
    *(".inf", "99999999", "given twice", "more than 18", r"'ab\n'"),
}
"""What a schema cannot say."""


@pytest.mark.parametrize(("kind", "written", "expected"), BAD)
def test_what_is_not_of_a_kind_is_told(kind: Kind[Any], written: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}"):
        finished(of_text(written), kind)
    assert any(part in expected for part in BEYOND) or not is_valid(kind, written)


def test_a_schema_describes_named_kinds_once() -> None:
    described = schema(record(dict, {"a": PORT, "b": PORT.described("x")}), "Two ports")
    assert "Two ports" == described["title"]
    assert {"$ref": "#/$defs/port"} == described["properties"]["a"]
    assert ["port"] == list(described["$defs"])
    assert ["name"] == described["$defs"]["port"]["required"]
    assert {"anyOf": [{"$ref": "#/$defs/port"}]} == {
        key: value
        for key, value in schema({"anyOf": [PORT]}, "T").items()
        if key not in {"$schema", "title", "$defs"}
    }


FILE = """\
ports:
- {name: A, sped: 1}
- speed: fast
- name: console
log: some
"""


def test_all_that_is_wrong_with_a_file_is_told_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "ports.yaml"
    file.write_text(FILE)
    with pytest.raises(ConfigError) as raised:
        read(file, PORTS)
    is_name = "is not a name of 1 to 63 lower-case letters, digits and hyphens"
    assert [
        f"{file}:2: ports[0].sped: unknown key: did you mean 'speed'?",
        f"{file}:2: ports[0].name: 'A' {is_name}",
        f"{file}:3: ports[1]: name is missing",
        f"{file}:3: ports[1].speed: 'fast' is not a whole number from 1 to 115200",
        f"{file}:4: ports[2]: the console is not a port",
        f"{file}:5: log: 'some' is not one of all, none: did you mean 'none'?",
    ] == str(raised.value).splitlines()


def test_places_can_be_read_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("a = 1\nb = 'x'\n")
    with reading(file) as root:
        keys = root.keys({"a", "b"})
        assert (1, "x") == (keys["a"].take(integer(), 0), keys["b"].read(text()))

    def read_wrong() -> None:
        with reading(file) as root:
            keys = root.keys(["b", "c"])
            assert 0 == keys["b"].take(integer(), 0)
            keys["b"].read(boolean())

    with pytest.raises(ConfigError) as raised:
        read_wrong()
    assert [
        f"{file}:1: a: unknown key: known are b, c",
        f"{file}:2: b: 'x' is not a whole number from 0",
        f"{file}:2: b: 'x' is not true or false",
    ] == [
        line.replace("known are c, b", "known are b, c") for line in str(raised.value).splitlines()
    ]


def test_a_place_says_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"a":\n [{"b c": 1}]}')
    root = configuration.of_file(file)
    (item,) = root.keys()["a"].items()
    assert [f"{file}:1", f"{file}:2: a[0].b c"] == [str(root), str(item.keys()["b c"])]


def test_items_are_judged_together_where_they_are_well_and_values_are_turned_into_others() -> None:
    def distinct(items: Any) -> None:
        for at, (place, value) in enumerate(items):
            if value in [other for _, other in items[:at]]:
                place.fault(f"{value} is there already")

    def tenfold(place: Place, value: int) -> int:
        if value == 7:
            raise place.fault(f"{place.shown}: never 7")
        return 10 * value

    kind = list_of(integer().then(tenfold), together=distinct)
    assert (10, 20) == finished(of_text("[1, 2]"), kind)
    with pytest.raises(ConfigError) as raised:
        finished(of_text("[1, x, 1, 7]"), kind)
    assert [
        "[1]: 'x' is not a whole number from 0",
        "[3]: 7: never 7",
        "[2]: 10 is there already",
    ] == str(raised.value).splitlines()


def test_a_key_may_be_given_as_an_argument_of_another_name() -> None:
    kind = record(Port, {"id": needed(text(), "name"), "rate": as_argument(integer(), "speed")})
    assert Port("a", 1) == finished(of_text("{id: a, rate: 1}"), kind)
    assert {"id": "a", "rate": 1} == kind.write(Port("a", 1))


def test_a_key_that_says_nothing_is_as_one_that_is_not_there() -> None:
    kind = record(Port, {"name": needed(text()), "speed": integer()})
    assert Port("a") == finished(of_text("{name: a, speed: }"), kind)
    with pytest.raises(ConfigError, match=r"^name is missing$"):
        finished(of_text("{name: }"), kind)
    meant = record(Port, {"name": needed(text()), "speed": either(integer(), nothing(7))})
    assert Port("a", 7) == finished(of_text("{name: a, speed: }"), meant)


def test_keys_may_be_in_any_case_and_say_nothing_where_go_writes_them() -> None:
    keys: dict[str, Any] = {"name": needed(text()), "speed": integer()}
    as_go = record(Port, keys, any_case=True)
    found = finished(of_text('{"Name": "a", "Speed": null, "Other": null}'), as_go)
    assert Port("a") == found
    for document, kind, expected in (
        (
            "{name: a, other: null}",
            record(Port, keys),
            ["other: unknown key: known are name, speed"],
        ),
        (
            "{name: a, Name: b, nmae: c}",
            as_go,
            [
                "Name: is the same key as name: keep one of them",
                "nmae: unknown key: did you mean 'name'?",
            ],
        ),
    ):
        with pytest.raises(ConfigError) as raised:
            finished(of_text(document), kind)
        assert expected == str(raised.value).splitlines()


def test_null_can_be_an_empty_list(tmp_path: Path) -> None:
    assert () == finished(of_text("null"), list_of(text(), nullable=True))
    assert ("a",) == finished(of_text("[a]"), list_of(text(), nullable=True))
    with pytest.raises(ConfigError, match=r"^null is not a list$"):
        finished(of_text("null"), list_of(text()))
    nullable = schema(list_of(text(), nullable=True), "x")["anyOf"]
    assert [{"type": "null"}, {"type": "array", "items": {"type": "string"}}] == nullable
    (tmp_path / "c.json").write_text("null")
    assert {} == of_file(tmp_path / "c.json").keys()


def test_there_is_always_something_to_suggest_and_what_is_very_long_is_cut() -> None:
    assert "there are none" == suggestion("a", [])
    assert "did you mean 'alpha'?" == suggestion("alhpa", ["beta", "alpha"])
    assert suggestion("?", [str(number) for number in range(99)]).endswith("38, 39, ...")
    with pytest.raises(ConfigError) as raised:
        finished(of_text(f"{{{'k' * 1000}: 1}}"), PORT)
    assert len(str(raised.value).splitlines()[0]) < 1000


def test_every_public_name_is_there_and_documented() -> None:
    functions = [one for one in configuration.__all__ if not one.isupper()]
    assert [] == [one for one in functions if not getattr(configuration, one).__doc__]


def test_null_is_as_absent_in_what_programs_in_go_write() -> None:
    found = {"a": None, "b": [{"c": None, "d": [None]}], "e": {"f": {"g": None}}}
    assert {"b": [{"d": [None]}], "e": {"f": {}}} == configuration.without_nulls(found)
    assert {"e": {"f": None}} == configuration.without_nulls({"e": {"f": None}}, 1)
