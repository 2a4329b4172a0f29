"""Each fault makes the conformance check that is there for it say something else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
SOCKET = "--control-socket={kubelet_dir}/ctl.sock"
CTL = f"{BIN}/simulated-device-plugin ctl {SOCKET} "


def check(
    path: Path, name: str, *options: str, fault: str = "", within: int = 2
) -> tuple[str, str]:
    """Return verdict and reason of one check of the plugin, which has ``fault`` from the start.

    ``within`` is how many seconds the plugin has for what should come.
    """
    (path / "devices.json").write_text(
        json.dumps({"timeline": [{"at": "0s", "do": fault, "by": "1200ms"}] if fault else []})
    )
    subprocess.run(
        [
            *(
                BIN / "deviceplugin",
                "conformance",
                "--quick",
                f"--within={within}",
                f"--only={name}",
            ),
            *(f"--json={path}/report.json", *options, "--"),
            *(BIN / "simulated-device-plugin", "--number-devices=1", SOCKET),
            f"--devices={path}/devices.json",
        ],
        capture_output=True,
        check=False,
        timeout=50,
    )
    report = json.loads((path / "report.json").read_text())
    (result,) = report["checks"]
    return result["verdict"], result["text"]


@pytest.mark.parametrize(
    ("name", "fault", "expected"),
    [
        ("allocation.prompt", "", "pass"),
        ("allocation.prompt", "slow", "fail"),
        ("allocation.every-device", "", "pass"),
        ("allocation.every-device", "fail", "fail"),
        ("allocation.unhealthy-refused", "", "n/a"),
        ("allocation.unhealthy-refused", "unhealthy", "pass"),
    ],
)
def test_a_fault_from_the_start_changes_the_verdict(
    tmp_path: Path, name: str, fault: str, expected: str
) -> None:
    # What does not come is waited for to the end; what comes may be late on a busy machine.
    verdict, text = check(tmp_path, name, fault=fault, within=2 if expected == "n/a" else 10)
    assert (expected, text) == (verdict, text)


@pytest.mark.parametrize(
    ("order", "expected", "reason"),
    [
        ("unhealthy", "pass", ""),
        ("unplug", "pass", ""),
        ("hang", "fail", "no new list within 6 s after the command"),
        ("crash", "fail", "the plugin ended with status -9"),
    ],
)
def test_a_fault_that_is_told_live_changes_the_verdict(
    tmp_path: Path, order: str, expected: str, reason: str
) -> None:
    option = f"--trigger-change={CTL}{order}"
    # Within this the plugin starts, too; only a plugin that hangs is waited for to the end.
    within = 6 if order == "hang" else 15
    verdict, text = check(tmp_path, "hot-plug.noticed", option, within=within)
    assert (expected, text) == (verdict, text)
    assert reason in text
