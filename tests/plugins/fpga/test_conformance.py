"""The plugin passes every check that applies, on a card that changes while it runs."""

import sys
from pathlib import Path

import pytest

from conformant import check
from fpga.trees import AFU, OTHER_AFU, FpgaTree

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("mode", "change"),
    [
        ("region", "mkdir {port}/errors && echo 0x1 > {port}/errors/errors"),
        ("af", f"echo {OTHER_AFU} > {{port}}/afu_id"),
    ],
    ids=["region", "af"],
)
def test_the_plugin_passes_all_that_applies(
    tree: FpgaTree, tmp_path: Path, mode: str, change: str
) -> None:
    port, _ = tree.simple(AFU, AFU)
    command = [
        *(f"{BIN}/fpga-device-plugin", f"--mode={mode}", f"--sysfs-dir={tree.sys}"),
        *(f"--cdi-dir={tmp_path}/cdi", "--discovery-interval=1s", "--error-patience=1ms"),
    ]
    passed = check(command, change.format(port=port), all_checks=mode == "region")
    assert ("allocation.cdi-names" in passed) == (mode == "region")
