"""The plugin is as a kubelet expects, with the fake driver behind it."""

import json
import subprocess
import sys
from pathlib import Path

from gpu.fake_nvml import FakeNvml, Fleet

BIN = Path(sys.executable).parent


def test_the_plugin_conforms(tmp_path: Path, nvml_library: Path) -> None:
    fake = FakeNvml(tmp_path / "nvml", Fleet.of(8, switch=12))
    lose = f"sed -i '/^gpu 0 /s/$/ state=lost/; $aevent 1 xid gpu=1 code=31' {fake.path}"
    report = tmp_path / "report.json"
    subprocess.run(
        [
            *(BIN / "deviceplugin", "conformance", "--quick", "--within=60"),
            f"--json={report}",
            *(f"--trigger-change={lose}", "--", BIN / "gpu-device-plugin"),
            *("--pass-device-specs", "--device-list-strategy=envvar,volume-mounts,cdi-cri"),
            *(f"--cdi-dir={tmp_path}/cdi", f"--state-file={tmp_path}/health.json"),
        ],
        # Waits of the fake are looks at a file: fewer of them, or they are what is measured.
        env={**fake.environment(nvml_library), "FAKE_NVML_TURN": "100"},
        capture_output=True,
        check=False,
        timeout=110,
    )
    checks = json.loads(report.read_text())["checks"]
    failed = {check["id"]: check["text"] for check in checks if check["verdict"] == "fail"}
    assert {} == failed
    passed = {check["id"] for check in checks if check["verdict"] == "pass"}
    assert {"hot-plug.keeps-ids", "allocation.device-nodes", "allocation.cdi-names"} <= passed
