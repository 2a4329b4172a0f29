"""The plugin passes every check that applies, on GPUs that change while it runs."""

import sys
from pathlib import Path

import pytest

import conformant
from amd.machines import SMALL
from amd.plugin import Build

BIN = Path(sys.executable).parent


@pytest.mark.parametrize("shares", [1, 2])
def test_the_plugin_passes_all_that_applies(build: Build, tmp_path: Path, shares: int) -> None:
    tree = build()
    counter = tree.cards[SMALL.addresses[0]].folder / "ras/umc_err_count"
    command = [
        *(f"{BIN}/amd-device-plugin", f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}"),
        *(f"--state-file={tmp_path}/health.json", "--discovery-interval=1s"),
        f"--shares={shares}",
    ]
    conformant.check(command, f"echo 'ue: 1' > {counter}", all_checks=shares == 1)
