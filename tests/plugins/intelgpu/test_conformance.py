"""The plugin passes every check that applies, on GPUs that change while it runs."""

import sys
from pathlib import Path

import pytest

import conformant
from intelgpu.machines import Card, Machine
from intelgpu.plugin import Build

BIN = Path(sys.executable).parent
THREE = Machine(tuple(Card(f"0000:0{number}:00.0", "56a0", numa=0) for number in (3, 4, 5)))


@pytest.mark.parametrize("shares", [1, 2])
def test_the_plugin_passes_all_that_applies(build: Build, tmp_path: Path, shares: int) -> None:
    tree = build(THREE)
    firmware = tree.folder("0000:03:00.0") / "gpu_health"
    command = [
        *(f"{BIN}/intelgpu-device-plugin", f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}"),
        *(f"--state-file={tmp_path}/state.json", "--discovery-interval=1s"),
        f"--shares={shares}",
    ]
    conformant.check(command, f"echo critical > {firmware}", all_checks=shares == 1)
