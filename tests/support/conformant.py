"""Plugins under ``deviceplugin conformance``, with limits that fit a tree of files."""

import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

import forked_process
from deviceplugin_testing.conformance import Limits, _process
from deviceplugin_testing.tools.conformance import _cli, main
from patience import PATIENCE

PATIENT = Limits(
    start=PATIENCE,
    within=PATIENCE,
    call=PATIENCE,
    first_list=PATIENCE,
    hello=PATIENCE,
    stop=PATIENCE,
)
"""For a plugin that is expected to pass: it may be as late as a busy machine makes it."""
SHORT = replace(
    PATIENT, quiet=1, settle=0.3, look=0.5, down=0.7, restarts=3, leak_restarts=5, idle_cpu=0.1
)
"""What is short is inexact, and a slow machine takes longer for the same."""
OF_DEVICES = ("lists", "allocation", "preferred", "restart.stable-ids", "hot-plug")
"""What depends on a plugin's devices. All else is the framework's, and is checked on gophers."""


def fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the plugins ``tests.conformance.MODULE.CLASS`` from a process that has imported them."""
    folder = Path(__file__).parents[1] / "conformance"
    monkeypatch.syspath_prepend(folder.parents[1])
    forked_process.preload(
        *(
            f"tests.conformance.{path.parent.name}.{path.stem}"
            for path in sorted(folder.glob("*s/[!_]*.py"))
        )
    )
    monkeypatch.setattr(_process, "subprocess", forked_process)


def check(command: Sequence[str], change: str) -> set[str]:
    """Check that a plugin passes all that its devices have to do with; return what it passed.

    Args:
        command: Starts the plugin.
        change: A shell command that makes a device unhealthy while it runs.
    """
    only = [f"--only={one}" for one in OF_DEVICES]
    report = StringIO()
    with redirect_stdout(report), patch.object(_cli, "QUICK", SHORT):
        main(["--quick", "--output=json", *only, f"--trigger-change={change}", "--", *command])
    checks = json.loads(report.getvalue())["checks"]
    assert [] == [check for check in checks if check["verdict"] == "fail"]
    passed = {check["id"] for check in checks if check["verdict"] == "pass"}
    assert {"hot-plug.noticed", "hot-plug.keeps-ids", "allocation.every-device"} <= passed
    return passed
