"""The API reference says what the docstrings say, and every public name has one."""

import ast
from pathlib import Path

import pytest

import api_reference
import deviceplugin as dp


def test_the_page_is_what_the_docstrings_say() -> None:
    current = api_reference.PAGE.read_text(encoding="utf-8")
    assert api_reference.page() == current, "out of date: run build/api_reference.py"


def test_every_name_that_authors_import_is_on_the_page() -> None:
    assert sorted(dp.__all__) == sorted(each.name for each in api_reference.public("deviceplugin"))


@pytest.mark.parametrize("module", api_reference.libraries())
def test_every_public_name_has_a_docstring(module: str) -> None:
    assert [] == [each.name for each in api_reference.public(module) if not each.text]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a: int = 1, *, b: str) -> str: ...", "f(a: int=1, *, b: str) -> str"),
        ("@property\ndef f(self) -> int: ...", "f: int"),
        ("@classmethod\ndef f(cls, a: int) -> 'C': ...", "f(a: int) -> 'C'"),
        ("def f(self): ...", "f()"),
    ],
)
def test_a_signature_is_shown_as_it_is_called(source: str, expected: str) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    assert expected == api_reference.signature(node, "f", method=True)


def test_errors_are_listed_with_their_reasons() -> None:
    text = "Read it.\n\nRaises:\n    ConfigError: It is ``wrong``,\n        in a way.\n"
    expected = "Read it.\n\nRaises:\n\n* `ConfigError`: It is `wrong`,\n    in a way."
    assert expected == api_reference.prose(text)


def test_a_text_of_several_lines_below_a_field_is_not_indented() -> None:
    (numbered,) = [
        text
        for each in api_reference.public("deviceplugin")
        if each.name == "Device" and isinstance(each.definition, ast.ClassDef)
        for _, name, text in api_reference.documented(each.definition.body)
        if name == "numbered"
    ]
    assert [] == [line for line in numbered.splitlines() if line.startswith(" ")]


def test_another_name_of_a_function_has_its_docstring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_reference, "SOURCE", tmp_path)
    (tmp_path / "here.py").write_text("from there import old\n\nnew = old\n")
    (tmp_path / "there.py").write_text('def old(a: int) -> None:\n    """Do it."""\n')
    found = api_reference.definition("here", "new")
    assert found is not None
    assert ("new", "Do it.") == (found.name, found.text)
    assert "new(a: int) -> None" in api_reference.entry(found)
