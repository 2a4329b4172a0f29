"""The hook, called by runc as the plugin's CDI specification asks for it."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from containers import containerd, oci_image
from deviceplugin_fpga import command_line, devices
from fpga.cards import write_hook
from fpga.trees import AFU, INTERFACE, OTHER_AFU, FpgaTree, number_of

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hook(tree: FpgaTree, tmp_path: Path) -> Path:
    """Return the hook as it is called: with no flags, so that what calls it must add them."""
    installed = tmp_path / "opt/intel-fpga-crihook"
    command_line.install(installed)
    caller = tmp_path / "hook"
    write_hook(caller, installed, tree)
    return caller


@pytest.fixture
def run(hook: Path, tmp_path: Path) -> Run:
    """Return what runs a container that has a card, as a runtime with CDI does."""
    if missing := containerd.why_not():
        pytest.skip(missing)
    program = oci_image.busybox()
    assert program is not None
    bundle = tmp_path / "bundle"
    (bundle / "rootfs/bin").mkdir(parents=True)
    (bundle / "rootfs/bin/busybox").write_bytes(program.read_bytes())
    (bundle / "rootfs/bin/busybox").chmod(0o755)
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    devices.write_specification(devices.cdi_directory(tmp_path), "dfl-fme.0", hook)
    (path,) = tmp_path.glob("*dfl-fme.0.yaml")
    (device,) = json.loads(path.read_text())["devices"]

    def run_container(
        ports: Sequence[Path], **environment: str
    ) -> subprocess.CompletedProcess[str]:
        config = json.loads((bundle / "config.json").read_text())
        config["process"] |= {"terminal": False, "args": ["/bin/busybox", "ls", "/dev"]}
        config["process"]["env"] += [f"{key}={value}" for key, value in environment.items()]
        config["linux"]["devices"] = [_device(port) for port in ports]
        config["hooks"] = _hooks(device["containerEdits"])
        (bundle / "config.json").write_text(json.dumps(config))
        return subprocess.run(
            ["runc", f"--root={tmp_path}/runc", "run", f"fpga-{token_hex(4)}"],
            cwd=bundle,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run_container


def _device(port: Path) -> dict[str, Any]:
    major, minor = number_of(port)
    return {"path": f"/dev/{port.name}", "type": "c", "major": major, "minor": minor}


def _hooks(edits: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    return {
        one["hookName"]: [{key: value for key, value in one.items() if key != "hookName"}]
        for one in edits["hooks"]
    }


def test_a_container_is_started_if_the_functions_that_it_asks_for_can_be_had(
    run: Run, tree: FpgaTree
) -> None:
    ports = tree.simple(AFU)
    wanted = {"FPGA_REGION_1": INTERFACE, "FPGA_AFU_1": AFU}
    done = run(ports, **wanted)
    assert (0, "") == (done.returncode, done.stderr)
    assert "dfl-port.0" in done.stdout.split()
    done = run(ports, **wanted, FPGA_REGION_2=INTERFACE, FPGA_AFU_2=OTHER_AFU)
    assert (1, "") == (done.returncode, done.stdout)
    assert "FPGA_REGION_2: no free port of interface" in done.stderr
