"""Plugins on trees of files pass what their devices have to do with, as these change."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from amd.machines import SMALL
from amd.tree import AmdTree
from conformant import check
from fpga.trees import AFU, DFL, OTHER_AFU, FpgaTree
from intelgpu.machines import Card, Machine
from intelgpu.tree import IntelTree
from rdma.machines import SAMPLE
from rdma.tree import RdmaTree

THREE = Machine(tuple(Card(f"0000:0{number}:00.0", "56a0", numa=0) for number in (3, 4, 5)))
FUNCTIONS = {"resourceName": "hca", "resourcePrefix": "rdma", "selectors": {"isRdma": True}}
Started = tuple[list[str], str]
"""The flags of a plugin, and the command that makes one of its devices unhealthy."""


def amd(path: Path, shares: int) -> Started:
    tree = AmdTree(path / "node", SMALL)
    counter = tree.cards[SMALL.addresses[0]].folder / "ras/umc_err_count"
    flags = [f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}", f"--shares={shares}"]
    return [*flags, f"--state-file={path}/health.json"], f"echo 'ue: 1' > {counter}"


def intelgpu(path: Path, shares: int) -> Started:
    tree = IntelTree(path / "node", THREE)
    flags = [f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}", f"--shares={shares}"]
    firmware = tree.folder("0000:03:00.0") / "gpu_health"
    return [*flags, f"--state-file={path}/state.json"], f"echo critical > {firmware}"


def rdma(path: Path, shares: int) -> Started:
    tree = RdmaTree(path / "node", SAMPLE)
    state = tree.folders["0000:af:00.0"] / "infiniband/mlx5_1/ports/1/state"
    flags = [
        *(f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}", f"--proc-net-dir={tree.net}"),
        *(f"--devinfo-dir={path}/devinfo", f"--state-file={path}/names.json"),
        *("--link-patience=100ms", f"--resources={json.dumps([{**FUNCTIONS, 'shares': shares}])}"),
    ]
    return flags, f"echo '1: DOWN' > {state}"


PLUGINS: Mapping[str, Callable[[Path, int], Started]] = {
    "amd": amd,
    "intelgpu": intelgpu,
    "rdma": rdma,
}


def command(name: str, flags: list[str]) -> list[str]:
    program = Path(sys.executable).with_name(f"{name}-device-plugin")
    return [str(program), "--discovery-interval=1s", *flags]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shares"), [("amd", 1), ("intelgpu", 2), ("rdma", 2)])
def test_the_plugin_passes_all_that_applies(name: str, tmp_path: Path, shares: int) -> None:
    flags, change = PLUGINS[name](tmp_path, shares)
    check(command(name, flags), change)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "change"),
    [
        ("region", "mkdir {port}/errors && echo 0x1 > {port}/errors/errors"),
        ("af", f"echo {OTHER_AFU} > {{port}}/afu_id"),
    ],
)
def test_fpgas_pass_all_that_applies(tmp_path: Path, mode: str, change: str) -> None:
    tree = FpgaTree(tmp_path / "node", DFL)
    port, _ = tree.simple(AFU, AFU)
    flags = [f"--mode={mode}", f"--sysfs-dir={tree.sys}", f"--cdi-dir={tmp_path}/cdi"]
    words = command("fpga", [*flags, "--error-patience=1ms"])
    passed = check(words, change.format(port=port))
    assert ("allocation.cdi-names" in passed) == (mode == "region")


PORTS = """
name: port
id: port
env: {"PORT_{index}": "{path}"}
annotations: {"example.com/{basename}": "{path}"}
mounts: [{path: /etc/hostname, readOnly: true}]
cdi: ["example.com/port={basename}"]
groups: [{paths: [{path: ROOT/port*, mountPath: /dev/}]}]
"""


@pytest.mark.slow
def test_the_generic_plugin_passes_what_no_other_has(root: Path) -> None:
    for number, target in enumerate(("/dev/null", "/dev/zero")):
        (root / f"port{number}").symlink_to(target)
    (root / "port9").touch()  # which is no device node, and so unhealthy
    toggle = f"rm {root}/port5 2>/dev/null || ln -s /dev/null {root}/port5"
    flags = [f"--device={PORTS.replace('ROOT', str(root))}"]
    passed = check(command("generic", flags), toggle)
    names = ("unhealthy-refused", "device-nodes", "mounts", "envs", "cdi-names")
    assert {f"allocation.{name}" for name in names} <= passed
