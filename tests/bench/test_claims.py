"""Measuring claims of a DRA driver, here of one in few lines."""

import json
import sys
from pathlib import Path

import pytest

from deviceplugin_testing.conformance._limits import Limits
from deviceplugin_testing.tools.bench import _claims as bench_claims
from deviceplugin_testing.tools.bench import main


def driver(name: str) -> list[str]:
    return [sys.executable, "-m", "tests.conformance.dra_drivers", name]


def test_claims_of_a_driver_are_prepared_and_released(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    words = ["--claims", "--allocations=3", f"--json={path}", "--", *driver("Good")]
    assert 0 == main(words)
    assert "Prepare of 1 device" in capsys.readouterr().out
    (section,) = json.loads(path.read_text())["sections"]
    assert [1, 3, 3, 3, 1] == [one["count"] for one in section["figures"]]
    assert all(value > 0 for one in section["figures"] for value in one["values"])


def test_a_driver_that_fails_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_claims, "Limits", lambda: Limits(start=8.0))
    assert 1 == main(["--claims", "--", *driver("OffersNothing")])
    assert "no complete pool" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--claims"], ["--claims", "--bare", "--", "x"], ["--claims", "--soak=1m", "--", "x"]]
)
def test_claims_are_measured_of_one_command_and_alone(words: list[str]) -> None:
    assert 2 == main(words)
