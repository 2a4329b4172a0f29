"""The driver of the framework, by the checks that we have for drivers of others."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformant import PATIENT
from deviceplugin_testing.conformance import Subject, Verdict, run
from deviceplugin_testing.conformance.dra import DRA_CHECKS, DraTrial

GOPHERS = str(Path(sys.executable).with_name("gopher-device-plugin"))


@pytest.mark.slow
def test_our_driver_passes_every_check_that_applies(tmp_path: Path) -> None:
    for name in ("gary", "gerd", "gina"):
        (tmp_path / name).touch()
    command = [GOPHERS, "--protocol=dra", f"--directory={tmp_path}"]
    with DraTrial(Subject(command=command), replace(PATIENT, quiet=2.5, settle=0.5), 1) as trial:
        results = run(trial, DRA_CHECKS, lambda _result: None)
    assert {"claims.shares": (Verdict.NOT_APPLICABLE, "none of its devices is shared")} == {
        one.check.id: (one.verdict, one.text) for one in results if one.verdict != Verdict.PASS
    }
