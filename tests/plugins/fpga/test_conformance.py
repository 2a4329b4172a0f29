"""The plugin passes every check that applies, on a card that changes while it runs."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformant import PATIENT
from deviceplugin.tools.conformance import _cli, main
from fpga.trees import AFU, OTHER_AFU, FpgaTree

BIN = Path(sys.executable).parent
SHORT = replace(PATIENT, quiet=1, settle=0.3, down=0.7, restarts=2, leak_restarts=3)


@pytest.mark.parametrize(
    ("mode", "change", "only"),
    [
        ("region", "mkdir {port}/errors && echo 0x1 > {port}/errors/errors", ()),
        ("af", f"echo {OTHER_AFU} > {{port}}/afu_id", ("--only=hot-plug", "--only=allocation")),
    ],
    ids=["region", "af"],
)
def test_the_plugin_passes_all_that_applies(
    tree: FpgaTree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    change: str,
    only: tuple[str, ...],
) -> None:
    monkeypatch.setattr(_cli, "QUICK", SHORT)
    port, _ = tree.simple(AFU, AFU)
    command = [
        *(f"{BIN}/fpga-device-plugin", f"--mode={mode}", f"--sysfs-dir={tree.sys}"),
        *(f"--cdi-dir={tmp_path}/cdi", "--discovery-interval=1s", "--error-patience=1ms"),
    ]
    report = tmp_path / "report.json"
    options = ["--quick", f"--json={report}"]
    trigger = f"--trigger-change={change.format(port=port)}"
    main([*options, *only, trigger, "--", *command])
    checks = json.loads(report.read_text())["checks"]
    assert [] == [check for check in checks if check["verdict"] == "fail"]
    passed = {check["id"] for check in checks if check["verdict"] == "pass"}
    assert {"hot-plug.noticed", "allocation.every-device"} <= passed
    assert ("allocation.cdi-names" in passed) == (mode == "region")
