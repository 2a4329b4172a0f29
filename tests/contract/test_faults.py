"""Faults are planted one at a time, and only a test that passes without one notices it."""

from pathlib import Path

import pytest

import faults

PRODUCT = """\
def larger(one, other):
    if one > other and not None:
        return one
    print(1)
    return other
"""
TESTS = """\
import product

def test_a_number():
    assert product.larger(2, 1) == 2

def test_that_always_fails():
    assert False
"""


@pytest.fixture
def product(tmp_path: Path) -> Path:
    path = tmp_path / "src/product.py"
    path.parent.mkdir()
    path.write_text(PRODUCT)
    return path


def test_faults_are_one_change_each(product: Path) -> None:
    found = [(one.line, one.was, one.now) for one in faults.Source(product).faults({2, 3, 4})]
    assert {
        (2, " and ", " or "),
        (2, " > ", " >= "),
        (2, "not None", "bool(None)"),
        (3, "return one", "return None"),
        (4, "print(1)", "pass"),
        (4, "1", "2"),
    } == {*found}


@pytest.mark.slow
def test_a_test_that_fails_anyway_notices_nothing(
    product: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take half of the time
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist")
    names = ["test_it.py::test_that_always_fails", "test_it.py::test_a_number"]
    noticed = {
        one.was: faults.noticed(one, names, quick=False)
        for one in faults.Source(product).faults({3, 5})
    }
    assert {"return one": "test_it.py::test_a_number", "return other": None} == noticed
