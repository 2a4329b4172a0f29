"""The driver of the framework, by the checks that we have for drivers of others."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformant import PATIENT
from deviceplugin_testing.conformance import Subject, Verdict, run
from deviceplugin_testing.conformance.dra import DRA_CHECKS, DraTrial

BIN = Path(sys.executable).parent
GOPHERS = (BIN / "gopher-device-plugin", "--directory={tmp_path}")
PARTS = (
    *(BIN / "simulated-device-plugin", "--profile=parts", "--state-file={tmp_path}/parts.json"),
    *("--poll-interval=200ms", "--pod-resources-interval=1s"),
)


@pytest.mark.slow
@pytest.mark.parametrize("words", [GOPHERS, PARTS], ids=["gophers", "parts"])
def test_our_driver_passes_every_check_that_applies(
    tmp_path: Path, words: Sequence[object]
) -> None:
    for name in ("gary", "gerd", "gina"):
        (tmp_path / name).touch()
    command = [str(one).format(tmp_path=tmp_path) for one in (*words, "--protocol=dra")]
    with DraTrial(Subject(command=command), replace(PATIENT, quiet=2.5, settle=0.5), 1) as trial:
        results = run(trial, DRA_CHECKS, lambda _result: None)
    assert {"claims.shares": (Verdict.NOT_APPLICABLE, "none of its devices is shared")} == {
        one.check.id: (one.verdict, one.text) for one in results if one.verdict != Verdict.PASS
    }
