"""YAML and JSON as people and programs in Go write them."""

import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.errors import ConfigError
from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import of_file, of_text, plain_documents

TAB = "a tab cannot indent a key or an entry: use spaces"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n\t"a": [\n\t\t1,\t2\n\t]\n}', {"a": [1, 2]}),
        ('{\n\t"a": 1, # one\n\tb: [2,],\n}', {"a": 1, "b": [2]}),
        ("a: {\n\tb: 1\n\t}\nc: [\t2\t,\t3\t]", {"a": {"b": 1}, "c": [2, 3]}),
        ("a:\t1\nb\t:\t2\t# two\n'c'\t: 3\t\n", {"a": 1, "b": 2, "c": 3}),
        ("-\ta\n-\t'b'\n-\t[c]", ["a", "b", ["c"]]),
        ("a: 1\n\t\n\t# one\n  \t\nb: 2\n\t", {"a": 1, "b": 2}),
        ("a: b\tc\n  \td\ne: f", {"a": "b\tc d", "e": "f"}),
        ("[a\n\tb, c]", ["a b", "c"]),
        ("a:\n \t{b: 1}\nc:\n \t'd'\n", {"a": {"b": 1}, "c": "d"}),
        ("a: |\t\n  b\tc\n  \td\t\ne: 1", {"a": "b\tc\n\td\t\n", "e": 1}),
        ("a: |+\t# keeps\n  b\n\nc: >2-\t\n    d\n", {"a": "b\n\n", "c": "  d"}),
        ("---\t# one\na: 1\n...\t\n", {"a": 1}),
    ],
)
def test_a_tab_is_white_space_where_yaml_has_it(text: str, expected: Any) -> None:
    assert expected == of_text(text).plain()
    assert [expected] == plain_documents(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("b: 1\n\ta: 1", 2),
        ("a:\n\tb: 1", 2),
        ("a:\n \tb: 1", 2),
        ("a:\n  b: 1\n\tc: 2", 3),
        ("a:\n  b: 1\n  \tc: 2", 3),
        ("a:\n\t- b", 2),
        ("b: 1\na: b\n\tc", 3),
        ("a:\n-\tb: 1", 2),
        ("a:\n-\t- 1", 2),
        ("a:\n\t{b: 1}", 2),
    ],
)
def test_a_tab_that_indents_is_refused_by_its_name(text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=f"^line {line}: not valid: {TAB}$"):
        of_text(text)
    with pytest.raises(ConfigError, match=f"^line {line}: {TAB}$"):
        plain_documents(text)


def test_what_else_is_wrong_with_a_header_or_a_tag_is_told() -> None:
    with pytest.raises(ConfigError, match=r"^line 1: not valid: expected chomping or indentation"):
        of_text("a: |x\n  b")
    with pytest.raises(ConfigError, match=r"^line 2: not valid: expected the node content, but"):
        of_text("a:\n \t[1,,2]")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["c.yaml", "c.json", "c.toml"])
def test_a_file_has_any_encoding_of_unicode(
    tmp_path: Path, name: str, mark: str, encoding: str
) -> None:
    text = 'a = "ü😀"' if name == "c.toml" else '{"a": "ü😀"}'
    content = f"{mark}{text}\n".encode(encoding)
    (tmp_path / name).write_bytes(content)
    assert {"a": "ü😀"} == of_file(tmp_path / name).plain()
    if name == "c.json":
        assert [{"a": "ü😀"}] == plain_documents(content)
        assert {"a": "ü😀"} == of_text(mark + text).plain()


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    for content in (b"a: 1\nb: \xff", b"\xff\xfea\x00\n\x00\x00\xd8"):
        with pytest.raises(ConfigError, match=r"^c: line [12]: [a-z ]+ of UTF-"):
            plain_documents(content, "c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\n---\n", {"a": 1}),
        ("---\n# nothing\n---\n---\na: 1\n---\n# end\n", {"a": 1}),
        ("a: 1\n...\n", {"a": 1}),
        ("null\n---\na: 1\n", {"a": 1}),
        ("---\n---\n", None),
    ],
)
def test_a_document_without_content_is_none(text: str, expected: Any) -> None:
    assert expected == of_text(text).plain()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n---\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ("[1] [2][3] \n\n", [[1], [2], [3]]),
        ("on: 1\n8080: yes\n1.5: {~: 2}\n", [{"on": 1, "8080": True, "1.5": {"~": 2}}]),
        ("", []),
    ],
)
def test_several_documents_are_objects_with_strings_as_keys(text: str, expected: Any) -> None:
    assert expected == plain_documents(text)


def test_json_is_read_as_json_also_where_yaml_is_expected() -> None:
    text = '{"a": "\\ud83d\\ude00", "b": 1e3, "c": {"<<": 1}, "%s": "\x7f"}' % ("d" * 2000)
    assert json.loads(text) == of_text(text).plain() == plain_documents(text)[0]
    with pytest.raises(ConfigError, match=r"^not valid: Exceeds the limit"):
        of_text("[" + "9" * 5000 + "]")
    with pytest.raises(ConfigError, match=r"^nested too deeply$"):
        plain_documents("[" * 100_000)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *(
            (text, text)
            for text in (
                *("1:30", "0000:03:00.0", "03:00.0", "2001-01-01", "2001-99-99"),
                *("=", "y", "0o17", "08", "1e3"),
            )
        ),
        *(("0777", 0o777), ("0x1f", 0x1F), ("1_000", 1000)),
        *(("yes", True), ("off", False), ("~", None)),
    ],
)
def test_a_plain_value_is_what_a_program_in_go_reads_or_a_string(
    written: str, expected: Any
) -> None:
    assert [{"a": expected}] == plain_documents(f"a: {written}")
    assert {"a": expected} == of_text(f"a: {written}").plain()


@pytest.mark.parametrize(
    ("kind", "written", "problem"),
    [
        (cfg.integer(), "010", "010 is octal in YAML: write 8 or 10"),
        (cfg.integer(), "0o17", "'0o17' is not a whole number from 0"),
        (cfg.integer(), "08", "'08' is not a whole number from 0"),
        (cfg.integer(), "1:30", "'1:30' is not a whole number from 0"),
        (cfg.number(), "1e3", "'1e3' is not a number"),
        (cfg.boolean(), "y", "'y' is not true or false"),
        (cfg.text(), "yes", "yes is not a string: put it in quotes"),
    ],
)
def test_what_a_program_in_go_may_read_otherwise_is_named(
    kind: cfg.Kind[Any], written: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        cfg.finished(of_text(written), kind)
    assert problem == str(raised.value)


def test_an_anchor_can_be_given_again() -> None:
    assert {"a": 1, "b": 1, "c": 2, "d": 2} == of_text("a: &x 1\nb: *x\nc: &x 2\nd: *x").plain()


def test_what_is_only_for_anchors_is_ignored_at_the_top_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("x-one: &one {a: 1}\nx-two: 2\nb: {<<: *one}\nc: {x-three: 3}\n")
    assert {"b": {"a": 1}, "c": {"x-three": 3}} == of_file(file).plain()
    assert {"x-one": 1, "b": 1} == of_text("x-one: &one 1\nb: *one").plain()
    assert {"b": 1} == of_text("x-one: &one 1\nb: *one", is_file=True).plain()
    file.write_text("x-one: 1\nx-one: 2\n")
    assert [f"{file}:2: x-one: given twice"] == of_file(file).faults.lines
