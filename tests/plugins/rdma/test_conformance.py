"""The plugin passes every check that applies, on cards whose links go down and come back."""

import json
import sys
from pathlib import Path

import pytest

import conformant
from rdma.plugin import Build

BIN = Path(sys.executable).parent
FUNCTIONS = {"resourceName": "hca", "resourcePrefix": "rdma", "selectors": {"isRdma": True}}


@pytest.mark.parametrize("shares", [1, 3])
def test_the_plugin_passes_all_that_applies(build: Build, tmp_path: Path, shares: int) -> None:
    tree = build()
    state = tree.folders["0000:af:00.0"] / "infiniband/mlx5_1/ports/1/state"
    command = [
        *(f"{BIN}/rdma-device-plugin", f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}"),
        *(f"--proc-net-dir={tree.net}", f"--devinfo-dir={tmp_path}/devinfo"),
        *(f"--state-file={tmp_path}/names.json", "--link-patience=100ms"),
        *(
            "--discovery-interval=1s",
            f"--resources={json.dumps([{**FUNCTIONS, 'shares': shares}])}",
        ),
    ]
    conformant.check(command, f"echo '1: DOWN' > {state}", all_checks=shares == 1)
