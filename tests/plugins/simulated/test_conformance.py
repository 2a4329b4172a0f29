"""Each fault makes the conformance check that is there for it say something else."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformant import PATIENT
from deviceplugin_testing.tools.conformance import _cli, main

BIN = Path(sys.executable).parent
SOCKET = "--control-socket={kubelet_dir}/ctl.sock"
CTL = f"{BIN}/simulated-device-plugin ctl {SOCKET} "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "order", "expected"),
    [
        ("allocation.prompt", "", "", "pass took "),
        ("allocation.prompt", "slow", "", "fail took "),
        ("allocation.every-device", "fail", "", "fail "),
        ("allocation.unhealthy-refused", "unhealthy", "", "pass refused "),
        ("hot-plug.noticed", "", "unhealthy", "pass "),
        ("hot-plug.noticed", "", "unplug", "pass "),
        ("hot-plug.noticed", "", "hang", "fail no new list within 6 s after the command"),
        ("hot-plug.noticed", "", "crash", "fail the plugin ended with status -9"),
    ],
)
def test_a_fault_changes_the_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    fault: str,
    order: str,
    expected: str,
) -> None:
    # Only a plugin that hangs is waited for to the end.
    limits = replace(PATIENT, call=1.0, settle=0.3, within=6 if order == "hang" else PATIENT.within)
    monkeypatch.setattr(_cli, "QUICK", limits)
    timeline = [{"at": "0s", "do": fault, "by": "1200ms"}] if fault else []
    (tmp_path / "devices.json").write_text(json.dumps({"timeline": timeline}))
    words = ["--quick", f"--only={name}", "--output=json"]
    words += [f"--trigger-change={CTL}{order}"] if order else []
    plugin = [f"{BIN}/simulated-device-plugin", "--number-devices=1", SOCKET]
    main([*words, "--", *plugin, f"--devices={tmp_path}/devices.json"])
    (result,) = json.loads(capsys.readouterr().out)["checks"]
    assert f"{result['verdict']} {result['text']}".startswith(expected)
