"""The plugin passes every check that applies, on GPUs that change while it runs."""

import json
import sys
from pathlib import Path

import pytest

from amd.machines import SMALL
from amd.plugin import Build
from deviceplugin.conformance import Limits
from deviceplugin.tools.conformance import _cli, main

BIN = Path(sys.executable).parent
SHORT = Limits(quiet=1, settle=0.3, down=0.7, restarts=2, leak_restarts=3)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("shares", [1, 2])
def test_the_plugin_passes_all_that_applies(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: int
) -> None:
    monkeypatch.setattr(_cli, "QUICK", SHORT)
    tree = build()
    counter = tree.cards[SMALL.addresses[0]].folder / "ras/umc_err_count"
    command = [
        *(f"{BIN}/amd-device-plugin", f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}"),
        *(f"--state-file={tmp_path}/health.json", "--discovery-interval=1s"),
        f"--shares={shares}",
    ]
    report = tmp_path / "report.json"
    change = f"echo 'ue: 1' > {counter}"
    only = ["--only=hot-plug", "--only=allocation", "--only=preferred"] if shares > 1 else []
    main(
        [
            *("--quick", "--within=6", f"--json={report}", *only, f"--trigger-change={change}"),
            *("--", *command),
        ]
    )
    checks = json.loads(report.read_text())["checks"]
    assert [] == [check for check in checks if check["verdict"] == "fail"]
    passed = {check["id"] for check in checks if check["verdict"] == "pass"}
    assert {"hot-plug.noticed", "allocation.every-device"} <= passed
