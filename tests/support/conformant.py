"""Plugins under ``deviceplugin conformance``, with limits that fit a tree of files."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from deviceplugin_testing.conformance import Limits
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
_SHORT = replace(PATIENT, quiet=1, settle=0.3, down=0.7, restarts=2, leak_restarts=3, idle_cpu=0.1)
"""What is short is inexact, and a slow machine takes longer for the same."""
_ALLOCATIONS = ("hot-plug", "allocation", "preferred")


def check(command: Sequence[str], change: str, *, all_checks: bool = True) -> set[str]:
    """Check that a plugin passes all that applies, and return the names of what it passed.

    Args:
        command: Starts the plugin.
        change: A shell command that makes a device unhealthy while it runs.
        all_checks: Whether all checks are run, or those only that devices have to do with.
    """
    only = [] if all_checks else [f"--only={one}" for one in _ALLOCATIONS]
    with TemporaryDirectory() as folder, patch.object(_cli, "QUICK", _SHORT):
        report = Path(folder, "report.json")
        flags = ["--quick", f"--json={report}", *only]
        main([*flags, f"--trigger-change={change}", "--", *command])
        checks = json.loads(report.read_text(encoding="utf-8"))["checks"]
    assert [] == [check for check in checks if check["verdict"] == "fail"]
    passed = {check["id"] for check in checks if check["verdict"] == "pass"}
    assert {"hot-plug.noticed", "allocation.every-device"} <= passed
    return passed
