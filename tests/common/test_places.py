"""Files in three languages: what is in them, with lines, and what is wrong with them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deviceplugin._config.documents.faults import MOST
from deviceplugin._config.documents.nodes import MAX_NODES, DocumentNode, MalformedError
from deviceplugin._config.documents.places import LONGEST
from deviceplugin._config.documents.toml_nodes import MOST_NAMES
from deviceplugin._config.documents.yaml_loader import MOST_MERGED
from deviceplugin._config.documents.yaml_nodes import plain
from deviceplugin.errors import ConfigError
from deviceplugin.kit.configuration import InvalidError, of_file, of_plain, of_text

TOO_MANY = f"more than {MAX_NODES} keys and values"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("c.toml", b"a = 1\nb = [", "{}:2: not valid: Invalid value"),
        ("c.toml", b"a = 1\na = 2\n", "{}:2: not valid: Cannot overwrite a value"),
        ("c.json", b"{\n'a': 1}", "{}:2: not valid: Expecting property name"),
        ("c.json", b"[" + b"9" * 5000 + b"]", "{}: not valid: Exceeds the limit"),
        ("c.json", b"[" * 100_000, "{}: not valid: nested too deeply"),
        ("c.json", b"[" * 300 + b"]" * 300, "{}: not valid: nested too deeply"),
        ("c.yaml", b"\na: [", "{}:2: not valid: expected the node content, but found"),
        ("c.yaml", b"a: \xff", "{}:1: not valid: invalid start byte of UTF-8"),
        ("c.yaml", b"a: 1\nb: \0", "{}: not valid: unacceptable character #x0000"),
        ("c.yaml", b"a: &x [*x]", "{}:1: not valid: nested too deeply"),
        ("c.yaml", b"a: " + b"[" * 500, "{}: not valid: nested too deeply"),
        ("c.yaml", b"? [a]\n: b\n", "{}:1: not valid: a key must be a string"),
        ("c.yaml", b"a: {<<: 5}", "{}:1: not valid: expected a mapping or list of mappings"),
        ("c.yaml", b"a: 1\n---\n---\nb: 1\n", "{}:4: not valid: a second document begins here"),
        ("c.toml", b"a = " + b"[" * 300 + b"]" * 300, "{}: not valid: nested too deeply"),
        ("c.toml", b"a = " + b"[" * 9000, "{}: not valid: nested too deeply"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        of_file(file)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(expected.format(file))


def bomb() -> str:
    """Return a document where each list has the one before it nine times."""
    lists = (f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]" for n in range(1, 10))
    return "\n".join(["k0: &k0 [1, 1]", *lists])


def test_what_aliases_repeat_is_counted_and_not_looked_at_each_time() -> None:
    many = f"a: &a [{'x,' * 1000}]\nb: &b [{'*a,' * 600}]\nc: [{'*b,' * 600}]\n"  # 360 million
    for text in (bomb(), many):
        with pytest.raises(ConfigError, match=rf"^line 1: not valid: {TOO_MANY}$"):
            of_text(text)
    with pytest.raises(MalformedError, match=rf"^{TOO_MANY}$"):
        plain(bomb())


def merges(base: str, levels: int) -> str:
    """Return a document where each mapping merges the one before it nine times."""
    lines = (f"k{n}: &k{n} {{<<: [{', '.join([f'*k{n - 1}'] * 9)}]}}" for n in range(1, levels))
    return "\n".join([f"k0: &k0 {base}", *lines])


def test_a_key_that_is_merged_often_is_one_key() -> None:
    expected = {f"k{n}": {"a": 1} for n in range(12)}
    assert expected == of_text(merges("{a: 1}", 12)).plain()
    assert [expected] == plain(merges("{a: 1}", 12))


def test_there_is_a_limit_on_the_keys_that_are_merged() -> None:
    base = "{" + ", ".join(f"a{n}: 1" for n in range(100)) + "}"
    most = MOST_MERGED // 100
    assert most + 1 == len(of_text(merges(base, most + 1)).keys())
    expected = f"<< merges more than {MOST_MERGED} keys$"
    with pytest.raises(ConfigError, match=f"^line {most + 2}: not valid: {expected}"):
        of_text(merges(base, most + 2))
    with pytest.raises(MalformedError, match=f"^{expected}"):
        plain(merges(base, most + 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &a {x: 1, y: 1}\nb: {<<: [{x: 2}, *a], z: 3}", {"x": 2, "y": 1, "z": 3}),
        ("a: &a {x: 1}\nb: {x: 0, <<: *a}", {"x": 0}),
        ("a: &a {x: 1}\nb: {<<: *a, <<: {x: 2}}", {"x": 2}),
        ("a: &a {x: 1}\nb: &b {<<: *b, x: 3}", {"x": 3}),
    ],
)
def test_merges_mean_what_they_mean_to_pyyaml(text: str, expected: dict[str, int]) -> None:
    assert expected == of_text(text).plain()["b"]
    assert expected == plain(text)[0]["b"]
    assert expected == yaml.safe_load(text)["b"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        (".json", f"[{'0,' * MAX_NODES}0]"),
        (".toml", f"a = [{'0,' * MAX_NODES}]"),
        (".toml", "a.b.c.d.e.f = 1\n" * (MAX_NODES // 5 + 1)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_document_has_a_limit_of_values(language: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        of_text(text, "c", language)
    (line,) = str(raised.value).splitlines()
    assert line.endswith(f"not valid: {TOO_MANY}")


@pytest.mark.parametrize("text", ["[1, 2, 3]", "{a: 1, b: }", "1\n---\n2\n---\n3\n---\n4"])
def test_what_is_not_repeated_is_counted_while_it_is_read(text: str) -> None:
    expected = [*yaml.safe_load_all(text)]
    assert expected == plain(text, most=5)
    with pytest.raises(MalformedError, match=r"^more than 3 keys and values$"):
        plain(text, most=3)


@pytest.mark.parametrize("name", ["a", '"="', "'#'", '"\\""'])
def test_a_dotted_key_has_a_limit_of_names(name: str) -> None:
    most = ".".join([name] * MOST_NAMES)
    assert 1 == len(of_text(f"b = 1\n[{most}]", language=".toml").plain()) - 1
    with pytest.raises(ConfigError, match=r"^line 2: not valid: nested too deeply$"):
        of_text(f"b = 1\n{most} . {name} = 1", language=".toml")


def test_dots_in_values_of_toml_are_not_counted() -> None:
    value = ".".join("a" * 2 * MOST_NAMES)
    text = f"a = '{value}'\nb = [{'1.5, ' * MOST_NAMES}]\n# {'.' * MOST_NAMES}\n"
    assert value == of_text(text, language=".toml").plain()["a"]


def test_of_many_faults_the_first_are_kept_and_the_rest_counted() -> None:
    root = of_text("".join(f"k{n}: 1\n" for n in range(MOST + 500)), "c.yaml")
    root.keys(["k"])
    *first, last = root.faults.lines
    assert (MOST, "c.yaml: 500 more") == (len(first), last)
    assert "c.yaml: line 1: k0: unknown key: did you mean 'k'?" == first[0]
    root.faults.add(1, "k0", "unknown key: did you mean 'k'?")
    assert last == root.faults.lines[-1]


def test_a_pipe_a_device_and_a_file_without_end_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "long.yaml").open("wb") as file:
        file.truncate(LONGEST + 1)
    for path, problem in (
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "long.yaml", f"more than {LONGEST} bytes"),
    ):
        expected = f"^{path}: {problem}: a configuration is a text file$"
        with pytest.raises(ConfigError, match=expected):
            of_file(path)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.yaml", "a: 1\na: 2\nb: !!float x\n", ["2: a"]),
        ("c.yaml", "a: 1\n'a': 2\n\"a\": 3\n", ["2: a", "3: a"]),
        ("c.yaml", "1: x\n'1': y\n", ["2: 1"]),
        ("c.yaml", "a:\n- b: {c: 1,\n     c: 2}\n", ["3: a[0].b.c"]),
        ("c.yaml", "a: &x {b: 1, b: 2}\nc: *x\n", ["1: a.b"]),
        ("c.json", '{"a": 1,\n"b": 2,\n"a": 3}', ["3: a"]),
        ("c.json", '{"a": 1, "\\u0061": 2}', ["1: a"]),
        ("c.json", '{"x": [{"b": {}, "c": "b",\n "b" : 1}]}', ["2: x[0].b"]),
        ("c.json", '{"\\"{": 1, "\\"{": 2}', ['1: "{']),
    ],
)
def test_a_key_that_others_would_take_the_last_of_is_refused(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert [f"{file}:{place}: given twice" for place in expected] == of_file(file).faults.lines


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.yaml", "a: {b: 1}\n1: {b: 2}\n", {"a": {"b": 1}, "1": {"b": 2}}),
        ("c.yaml", "a: &x {b: 1}\nc: {<<: *x, b: 2}\n", {"a": {"b": 1}, "c": {"b": 2}}),
        ("c.yaml", "a: &x {b: 1}\nc: {<<: *x, <<: *x}\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("c.yaml", "a: [1, 2.5, yes, null, x]\n", {"a": [1, 2.5, True, None, "x"]}),
        ("c.yaml", "", {}),
        ("c.yaml", "# nothing yet\n", {}),
        ("c.json", " \n", {}),
        ("c.toml", "# nothing yet\n", {}),
        ("c.toml", "a.b = [1, true, 1.5]\n", {"a": {"b": [1, True, 1.5]}}),
        (
            "c.json",
            '{"a": {"b": ["a", "a"]}, "b": {"b": "b"}}',
            {"a": {"b": ["a", "a"]}, "b": {"b": "b"}},
        ),
    ],
)
def test_what_a_file_says_is_taken(
    tmp_path: Path, name: str, text: str, expected: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(text)
    root = of_file(tmp_path / name)
    assert (expected, []) == (root.plain(), root.faults.lines)


def test_a_date_that_cannot_be_is_told_where_it_is_taken() -> None:
    root = of_text("a: !!timestamp 2001-99-99\nb: !!python/none x\n")
    for key, expected in (("a", "line 1: a: not valid"), ("b", "line 2: b: not valid")):
        with pytest.raises(InvalidError, match=f"^{expected}$"):
            root.keys()[key].plain()


def lines(node: DocumentNode, key: str = "") -> dict[str, int]:
    found = {key: node.line}
    for name, inner in node.pairs.items():
        found |= lines(inner, f"{key}.{name}")
    for number, inner in enumerate(node.items):
        found |= lines(inner, f"{key}[{number}]")
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "a:\n  b: 1\n  c:\n  - 2\n  - d: 3\n"),
        ("c.json", '{"a":\n  {"b": 1,\n  "c": [\n  2,\n  {"d": 3}]}}'),
    ],
)
def test_every_value_has_its_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = lines(of_file(tmp_path / name).node)
    assert [2, 4, 5] == [found[key] for key in (".a.b", ".a.c[0]", ".a.c[1].d")]


TOML = """\
a = 1

[[b]]
c = [
  {d = 1},
]
[b.e]
f.g = '''
[x]
'''
[[b]]
[[b.h]]
i = "]"  # [
"""


def test_what_is_within_a_statement_of_toml_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(TOML)
    found = lines(of_file(tmp_path / "c.toml").node)
    keys = (".a", ".b[0]", ".b[0].c[0].d", ".b[0].e.f.g", ".b[1]", ".b[1].h[0].i")
    assert [1, 3, 4, 8, 11, 13] == [found[key] for key in keys]
    (tmp_path / "c.toml").write_text("[empty]\n")
    assert {"": 1, ".empty": 1} == lines(of_file(tmp_path / "c.toml").node)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50)
@given(JSON, st.sampled_from([None, 1]), st.booleans())
@example({"": {"": [{}, []]}}, 1, True)
def test_json_that_was_written_from_a_value_gives_it_back(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    root = of_text(json.dumps(value, indent=indent, ensure_ascii=ascii_only), language=".json")
    assert (value, []) == (root.plain(), root.faults.lines)


@settings(max_examples=15)  # PyYAML's own writer takes most of the time
@given(JSON)
def test_yaml_that_was_written_from_a_value_gives_it_back_and_so_does_the_value(value: Any) -> None:
    assert value == of_text(yaml.safe_dump(value)).plain()
    assert value == of_plain(value, "request").plain()


@pytest.mark.parametrize("levels", [300, 100_000])
def test_a_request_that_is_nested_too_deeply_is_told(levels: int) -> None:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    with pytest.raises(ConfigError, match=r"^request: nested too deeply$"):
        of_plain(value, "request")
    with pytest.raises(ConfigError, match=r"^nested too deeply$"):
        of_plain(value)
