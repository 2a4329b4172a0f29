"""The command's settings: the mode from flag, environment and file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

BIN = Path(sys.executable).parent


def command(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "fpga-device-plugin"), *flags],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def setting(name: str, *flags: str, **environment: str) -> object:
    return json.loads(command("--print-config", *flags, **environment).stdout)[name]


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ((), {}, "af"),
        (("--config={file}",), {}, "regiondevel"),
        (("--config={file}",), {"DP_MODE": "region"}, "region"),
        (("--config={file}", "--mode=af"), {"DP_MODE": "region"}, "af"),
    ],
    ids=["default", "file", "environment", "flag"],
)
def test_the_mode_is_the_flags_or_the_environments_or_the_files(
    tmp_path: Path, flags: tuple[str, ...], environment: dict[str, str], expected: str
) -> None:
    file = tmp_path / "fpga.toml"
    file.write_text('mode = "regiondevel"\n')
    assert expected == setting("mode", *(flag.format(file=file) for flag in flags), **environment)


def test_a_mode_that_is_none_is_refused() -> None:
    done = command("--mode=everything", "--once")
    expected = "fpga-device-plugin: --mode: 'everything' is not one of af, region, regiondevel\n"
    assert (2, expected) == (done.returncode, done.stderr)


def test_the_nodes_name_is_taken_as_other_plugins_take_it() -> None:
    assert "node-1" == setting("node-name", NODE_NAME="node-1")


def test_without_a_driver_a_look_says_so(tmp_path: Path) -> None:
    done = command("--once", f"--sysfs-dir={tmp_path}")
    assert 1 == done.returncode
    assert "kernel driver is not loaded: neither " in done.stderr


def test_errors_that_are_not_looked_at_cannot_be_ignored() -> None:
    done = command("--ignore-errors=pcie1_error", "--once")
    expected = (
        "fpga-device-plugin: ignore-errors: 'pcie1_error' is not one of catfatal_errors, errors, "
        "fme-errors/errors, fme_errors, nonfatal_errors, pcie0_errors, pcie1_errors\n"
    )
    assert (2, expected) == (done.returncode, done.stderr)
