"""A recording has all that our plugins read: on it they find the same devices."""

import os
import re
import shutil
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import deviceplugin as dp
from amd import machines as amd_machines
from amd.tree import AmdTree
from deviceplugin.__main__ import main
from deviceplugin.kit.sysfs import Kernel
from deviceplugin.tools.record._devices import GROUP
from deviceplugin_amd import AmdPlugin, AmdSettings
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots, recorded
from fpga.trees import AFU, DFL, OTHER_AFU, FpgaTree
from hardware.recording import load
from hardware.tree import Hardware
from served.odd_hardware import SUBJECTS, Make

PLUGINS = Path(__file__).parents[2] / "plugins"
MACHINES = ("sys", "dev", "udev")
"""Folders of a machine that a recording is loaded into."""
NAMES = [name for name in SUBJECTS if ", " in name and not name.startswith("generic")]


VERSIONS = {"driverVersion", "driverVersionFull", "driverSrcVersion"}
"""Facts of kernel modules, which are not recorded."""


class Machine:
    """A machine below ``root``, in whose place its recording can be put."""

    def __init__(
        self, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.root = root
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def survives(self, make: Make) -> str:
        """Check that a plugin finds the same on the machine and on its recording.

        All that it reads of the machine's devices must be in it, but for what is empty. Returns the
        recording.
        """
        read: dict[str, bytes] = {}

        def noting(_: Kernel, path: str, most: int = 4096) -> bytes:
            read[os.path.realpath(path)] = found = kernel_read(Kernel(), path, most)
            return found

        kernel_read = Kernel.read
        with self._monkeypatch.context() as patch:
            patch.setattr(Kernel, "read", noting)
            before = _described(make)
        devices = f"{self.root}/sys/devices/"
        used = [one for one, text in read.items() if one.startswith(devices) and text.strip()]
        assert 0 == main(["record", f"--root={self.root}", "--mask-serials"])
        text = self._capsys.readouterr().out
        for name in MACHINES:
            shutil.rmtree(self.root / name, ignore_errors=True)
        load(text, Hardware(self.root))
        assert before == _described(make)
        assert [] == [path for path in used if not Path(path).is_file()]
        return text


def _described(make: Make) -> list[str]:
    found = sorted(
        repr(
            replace(one, attributes={k: v for k, v in one.attributes.items() if k not in VERSIONS})
        )
        for one in make().discover()
    )
    assert found
    return found


@pytest.fixture
def machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Machine:
    return Machine(tmp_path / "node", capsys, monkeypatch)


def test_of_amd_gpus(machine: Machine) -> None:
    tree = AmdTree(machine.root, amd_machines.MI210)
    first = amd_machines.MI210.addresses[0]
    (tree.cards[first].folder / "ras/gpu_vram_bad_pages").write_text("0x1 : 0x1000 : P\n")
    tree.use(next(tree.nodes()), 4711, 2**30)
    properties = (tree.folder(next(tree.nodes())) / "properties").read_text()

    def make() -> dp.Plugin:
        plugin = AmdPlugin(
            AmdSettings(
                resource_naming_strategy="mixed",
                sysfs_dir=tree.sys,
                dev_dir=tree.dev,
                state_file=None,
            ),
            pause=lambda _seconds: None,
        )
        found = [*plugin.discover()]
        assert 3 == len([*plugin.prefer(found, [], 3)])
        return plugin

    text = machine.survives(make)
    assert "4711" not in text
    assert dict(line.split() for line in properties.splitlines())["unique_id"] not in text


@pytest.mark.parametrize("name", NAMES)
def test_of_all_that_plugins_find(machine: Machine, name: str) -> None:
    make = SUBJECTS[name](machine.root.parent)
    for place in machine.root.glob("sys/devices/**/net/*/address"):
        place.write_text("00:11:22:33:44:55\n")
    assert "00:11:22" not in machine.survives(make)


def test_of_fpgas_with_the_newer_driver(machine: Machine) -> None:
    tree = FpgaTree(machine.root, DFL)
    port, _ = tree.simple(AFU, OTHER_AFU)
    tree.set_error(port, "errors", "0x20")
    tree.set_error(port, "first_error", "0x20")
    settings = FpgaSettings(mode="af", sysfs_dir=tree.sys, cdi_dir=machine.root.parent)
    machine.survives(lambda: FpgaPlugin(settings))


def test_of_what_a_file_selects(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = Hardware(machine.root)
    usb = hardware.usb("1-2", "10c4:ea60", 5)
    (hardware.sys / "devices" / usb / "bcdDevice").write_text("0100\n")
    hardware.behind_usb(usb, "1.0", "tty", "ttyUSB0", properties={"LAMP": "red", "FS_UUID": "u"})
    hardware.device("virtual/lamp/lamp0", "lamp", node="lamp0", attributes={"colour": "red"})
    file = machine.root.with_name("config.yaml")
    file.write_text(
        "devices:\n"
        "- name: tty\n"
        "  groups:\n"
        "  - select: {subsystem: tty, properties: {LAMP: red}, attributes: {bcdDevice: '01*'}}\n"
        "- {name: lamp, groups: [{select: {subsystem: lamp, attributes: {colour: red}}}]}\n"
    )
    monkeypatch.setattr(recorded, "DEFAULT_CONFIG", file)

    def make() -> dp.Plugin:
        roots = Roots(machine.root / "dev", machine.root / "sys", machine.root / "udev")
        plugin = GenericPlugin(GenericSettings.of_file(file), roots)
        assert {"devic.es/tty", "devic.es/lamp"} == {str(one.resource) for one in plugin.discover()}
        return plugin

    assert "FS_UUID" not in machine.survives(make)


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
    assert reading - {"gpu", "generic"} == {name.partition(", ")[0] for name in NAMES}
