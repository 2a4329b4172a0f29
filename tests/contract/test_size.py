"""What the repository may weigh."""

import pytest

import size


def test_each_figure_has_a_budget() -> None:
    found = size.figures([])
    assert size.BUDGETS.keys() == found.keys()


def test_what_is_above_its_budget_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def found() -> dict[str, int]:
        return {**size.BUDGETS, "pages": size.BUDGETS["pages"] + 1}

    assert 1 == size.main(["--check"], found)
    assert capsys.readouterr().out.startswith("pages ")
    assert 0 == size.main(["--check"], lambda: size.BUDGETS)
    assert "" == capsys.readouterr().out
