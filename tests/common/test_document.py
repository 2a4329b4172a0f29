"""Files with a mapping, in three languages, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin._config.files import _repeated_in_json, read_file
from deviceplugin.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("c.toml", b"log-level = ", "not valid: Invalid value"),
        ("c.json", b"{", "not valid: Expecting property name"),
        ("c.yaml", b"a: [", "not valid: while parsing a flow node expected the node content"),
        ("c.yaml", b"a: 2001-99-99\n", "not valid: month must be in 1..12"),
        ("c.yaml", b"\xff", "not valid: 'utf-8' codec can't decode byte 0xff"),
        ("c.yaml", b"- a\n", "must have keys and values, as in 'log-level: debug'"),
        ("c.yaml", b"text", "must have keys and values, as in 'log-level: debug'"),
        ("c.json", b"[]", "must have keys and values, as in 'log-level: debug'"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        read_file(file)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{file}: {expected}")


def faults(file: Path, text: str) -> list[str]:
    """Return what is wrong with ``text`` in ``file``."""
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_file(file)
    return [line.removeprefix(f"{file}: ") for line in str(raised.value).splitlines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", ["line 3: key 'a' is given twice"]),
        ("a: 1\n'a': 2\n\"a\": 3\n", [f"line {n}: key 'a' is given twice" for n in (2, 3)]),
        ("a:\n- b: {c: 1,\n     c: 2}\n", ["line 3: key 'c' is given twice"]),
        ("? [x, {y: 1, y: 2}]\n: 1\n", ["line 1: key 'y' is given twice"]),
        ("a: &x {b: 1, b: 2}\nc: *x\n", ["line 1: key 'b' is given twice"]),
        ("a: 1\na: 2\nb: !!float x\n", ["line 2: key 'a' is given twice"]),
    ],
)
def test_a_key_that_yaml_would_take_the_last_of_is_refused(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert expected == faults(tmp_path / "c.yaml", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n"b": 2,\n"a": 3}', ["line 3: key 'a' is given twice"]),
        ('{"a": 1, "\\u0061": 2}', ["line 1: key 'a' is given twice"]),
        ('{"x": [{"b": {}, "c": "b",\n "b" : 1}]}', ["line 2: key 'b' is given twice"]),
        ('{"\\"{": 1, "\\"{": 2}', ["line 1: key '\"{' is given twice"]),
    ],
)
def test_a_key_that_json_would_take_the_last_of_is_refused(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert expected == faults(tmp_path / "c.json", text)


def test_a_key_that_toml_has_twice_is_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path / "c.toml", "a = 1\na = 2\n")
    assert fault.startswith("not valid: Cannot overwrite a value (at ")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.yaml", "a: {b: 1}\nc: {b: 2}\n", {"a": {"b": 1}, "c": {"b": 2}}),
        ("c.yaml", "1: x\n'1': y\n", {1: "x", "1": "y"}),
        ("c.yaml", "a: &x {b: 1}\nc: {<<: *x, b: 2}\n", {"a": {"b": 1}, "c": {"b": 2}}),
        ("c.yaml", "a: &x {b: 1}\nc: {<<: *x, <<: *x}\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("c.yaml", "", {}),
        ("c.yaml", "# nothing yet\n", {}),
        (
            "c.json",
            '{"a": {"b": ["a", "a"]}, "b": {"b": "b"}}',
            {"a": {"b": ["a", "a"]}, "b": {"b": "b"}},
        ),
    ],
)
def test_what_is_not_the_same_key_of_one_mapping_is_taken(
    tmp_path: Path, name: str, text: str, expected: dict[Any, Any]
) -> None:
    (tmp_path / name).write_text(text)
    assert expected == read_file(tmp_path / name)


def test_a_mapping_that_contains_itself_is_no_endless_look(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: &x {b: *x}\n")
    value = read_file(tmp_path / "c.yaml")
    assert value["a"] is value["a"]["b"]


JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_no_json_that_was_written_from_a_mapping_has_a_key_twice(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert [] == list(_repeated_in_json(text))
