"""A recording has all that our plugins read: on it they find the same devices."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import deviceplugin as dp
from amd import machines as amd_machines
from amd.tree import AmdTree
from deviceplugin.__main__ import main
from deviceplugin.kit.sysfs import Kernel, Sysfs
from deviceplugin.tools.record._devices import GROUP
from deviceplugin_amd import AmdPlugin, AmdSettings
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots, recorded
from deviceplugin_intelgpu import IntelGpuPlugin, IntelGpuSettings
from deviceplugin_rdma import RdmaPlugin, RdmaSettings
from fpga.trees import AFU, BOTH, OTHER_AFU, FpgaTree
from hardware.recording import load
from hardware.tree import Hardware
from intelgpu import machines as intel_machines
from intelgpu.tree import IntelTree
from rdma import machines as rdma_machines
from rdma.tree import RdmaTree

PLUGINS = Path(__file__).parents[2] / "plugins"
Discover = Callable[[Path], Sequence[dp.Device]]
"""Returns what a plugin finds on the machine below a directory."""


@pytest.fixture
def survives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Discover], str]:
    """Return what checks that a plugin finds the same on a machine and on its recording.

    All that it reads of the machine's devices must be in the recording.
    """
    read: dict[str, bytes] = {}

    def noting(_: Kernel, path: str, most: int = 4096) -> bytes:
        read[os.path.realpath(path)] = found = kernel_read(Kernel(), path, most)
        return found

    kernel_read = Kernel.read

    def check(discover: Discover) -> str:
        root = tmp_path / "machine"
        with monkeypatch.context() as patch:
            patch.setattr(Kernel, "read", noting)
            before = discover(root)
        assert before
        text = ""
        for number, flags in enumerate(([], ["--mask-serials"])):
            assert 0 == main(["record", f"--root={root}", *flags])
            text = capsys.readouterr().out
            copy = tmp_path / f"copy{number}"
            load(text, Hardware(copy))
            assert _described(before, root) == _described(discover(copy), copy)
            lacking = [path for path in _of_devices(read, root) if not (copy / path).is_file()]
            assert [] == lacking
        return text

    return check


def _of_devices(read: Mapping[str, bytes], root: Path) -> list[str]:
    """Return what was read below devices, but for what is empty and what has its own lines."""
    return [
        os.path.relpath(path, root)
        for path, content in read.items()
        if path.startswith(f"{root}/sys/devices/") and content.strip()
    ]


def _described(devices: Sequence[dp.Device], root: Path) -> list[str]:
    return sorted(repr(device).replace(str(root), "") for device in devices)


def _amd(root: Path) -> list[dp.Device]:
    settings = AmdSettings(
        resource_naming_strategy="mixed",
        sysfs_dir=root / "sys",
        dev_dir=root / "dev",
        state_file=None,
    )
    plugin = AmdPlugin(settings, pause=lambda _seconds: None)
    found = [*plugin.discover()]
    assert 3 == len([*plugin.prefer(found, [], 3)])
    return found


@pytest.mark.parametrize(
    "machine",
    [
        amd_machines.SMALL,
        amd_machines.MI210,
        pytest.param(amd_machines.MI300X, marks=pytest.mark.slow),
    ],
    ids=lambda one: one.name,
)
def test_of_amd_gpus(
    survives: Callable[[Discover], str], tmp_path: Path, machine: amd_machines.Machine
) -> None:
    tree = AmdTree(tmp_path / "machine", machine)
    first = machine.addresses[0]
    (tree.cards[first].folder / "ras/gpu_vram_bad_pages").write_text("0x1 : 0x1000 : P\n")
    tree.use(next(tree.nodes()), 4711, 2**30)
    text = survives(_amd)
    assert "4711" not in text
    properties = (tree.folder(next(tree.nodes())) / "properties").read_text()
    unique = dict(line.split() for line in properties.splitlines()).get("unique_id", "0")
    assert unique == "0" or unique not in text


def test_of_intel_gpus(survives: Callable[[Discover], str], tmp_path: Path) -> None:
    tree = IntelTree(tmp_path / "machine", intel_machines.SMALL)
    address = intel_machines.SMALL.cards[2].address
    (tree.folder(address) / "gpu_health").write_text("warning\n")
    tree.divide(intel_machines.SMALL.cards[3].address, 2)

    def discover(root: Path) -> list[dp.Device]:
        settings = IntelGpuSettings(
            enable_monitoring=True,
            sysfs_dir=root / "sys",
            dev_dir=root / "dev",
            state_file=None,
        )
        found = [*IntelGpuPlugin(settings).discover()]
        assert any(device.health.reason for device in found)
        assert any(device.mounts for device in found)
        return found

    survives(discover)


def test_of_network_cards(survives: Callable[[Discover], str], tmp_path: Path) -> None:
    tree = RdmaTree(tmp_path / "machine", rdma_machines.SAMPLE)
    tree.cable("0000:af:00.0", is_in=False)
    interface = tree.folders["0000:3b:00.0"] / "net/ens1f0np0"
    (interface / "address").write_text("00:11:22:33:44:55\n")
    file = tmp_path / "config.json"
    pools = [
        {"resourceName": "vfio", "selectors": {"pfNames": ["ens1f0np0#2-3"]}},
        {"resourceName": "roce", "selectors": {"pfNames": ["ens1f0np0"], "isRdma": True}},
        {"resourceName": "ib", "selectors": {"linkTypes": ["infiniband"], "isRdma": True}},
        {"resourceName": "hca", "shares": 2, "selectors": {"isVirtual": False}},
    ]
    file.write_text(json.dumps({"resourceList": pools}))

    def discover(root: Path) -> list[dp.Device]:
        settings = RdmaSettings(
            resources=RdmaSettings.of_file(file).resources,
            devinfo_dir=None,
            state_file=None,
            sysfs_dir=root / "sys",
            dev_dir=root / "dev",
            proc_net_dir=tree.net,
        )
        found = [*RdmaPlugin(settings, Sysfs(root / "sys")).discover()]
        assert {"vfio", "roce", "ib", "hca"} == {
            str(one.resource).rpartition("/")[2] for one in found
        }
        return found

    assert "00:11:22" not in survives(discover)


@pytest.mark.parametrize("driver", BOTH)
@pytest.mark.parametrize("mode", ["af", "regiondevel"])
def test_of_fpgas(
    survives: Callable[[Discover], str], tmp_path: Path, driver: str, mode: str
) -> None:
    tree = FpgaTree(tmp_path / "machine", BOTH[driver])
    (port, _) = tree.simple(AFU, OTHER_AFU)
    tree.simple(AFU, address="0000:5e:00.0", number=1)
    tree.set_error(port, "errors", "0x20")
    tree.set_error(port, "first_error", "0x20")

    def discover(root: Path) -> list[dp.Device]:
        settings = FpgaSettings(mode=mode, sysfs_dir=root / "sys", cdi_dir=tmp_path)  # type: ignore[arg-type]
        return [*FpgaPlugin(settings).discover()]

    survives(discover)


def test_of_what_a_file_selects(
    survives: Callable[[Discover], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardware = Hardware(tmp_path / "machine")
    usb = hardware.usb("1-2", "10c4:ea60", 5)
    (hardware.sys / "devices" / usb / "bcdDevice").write_text("0100\n")
    hardware.behind_usb(usb, "1.0", "tty", "ttyUSB0", properties={"LAMP": "red", "FS_UUID": "u"})
    hardware.device("virtual/lamp/lamp0", "lamp", node="lamp0", attributes={"colour": "red"})
    file = tmp_path / "config.yaml"
    file.write_text(
        "devices:\n"
        "- name: tty\n"
        "  groups:\n"
        "  - select: {subsystem: tty, properties: {LAMP: red}, attributes: {bcdDevice: '01*'}}\n"
        "- {name: lamp, groups: [{select: {subsystem: lamp, attributes: {colour: red}}}]}\n"
    )
    monkeypatch.setattr(recorded, "DEFAULT_CONFIG", file)

    def discover(root: Path) -> list[dp.Device]:
        roots = Roots(root / "dev", root / "sys", root / "udev")
        found = [*GenericPlugin(GenericSettings.of_file(file), roots).discover()]
        assert {"devic.es/tty", "devic.es/lamp"} == {str(device.resource) for device in found}
        return found

    assert "FS_UUID" not in survives(discover)


def test_every_plugin_that_reads_sysfs_is_among_them() -> None:
    """The GPU plugin asks NVML; of sysfs it reads only what is recorded of any PCI device."""
    reading = {
        path.relative_to(PLUGINS).parts[0]
        for path in PLUGINS.glob("*/src/**/*.py")
        if re.search(
            r"^from deviceplugin.kit.* import .*(Sysfs|hardware)\b", path.read_text(), re.MULTILINE
        )
    }
    assert reading - {"gpu"} == {entry.name for entry in entry_points(group=GROUP)}
