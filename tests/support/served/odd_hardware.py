"""Every plugin on a node whose files are at fault, and which of its devices a fault concerns."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import amd.machines
import deviceplugin as dp
import intelgpu.machines
import rdma.machines
from agents.agent_node import ALL, agent_node
from amd.tree import AmdTree
from deviceplugin.tools.agent import _sections
from deviceplugin_amd import AmdPlugin, AmdSettings
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.discovery.cache import Cache
from deviceplugin_intelgpu import IntelGpuPlugin, IntelGpuSettings
from deviceplugin_rdma import RdmaPlugin, RdmaSettings
from deviceplugin_template import SerialPlugin
from fpga.trees import AFU, OPAE, FpgaTree
from hardware.tree import Hardware
from intelgpu.tree import IntelTree
from rdma.tree import RdmaTree

Make = Callable[[], dp.Plugin]
"""Makes a plugin that has seen nothing yet, as a new process does."""
Subject = Callable[[Path], Make]
"""Makes the hardware of a plugin in an empty directory."""
_NO_TIME: Final = timedelta()
_FUNCTION: Final = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.)[0-7]")


def as_installed(name: str, folder: Path) -> Make:
    """Make the hardware of the end to end suite, for a plugin as an agent has it."""
    node = agent_node(folder / "node", folder, [name])
    file = folder / "section.json"
    file.write_text(json.dumps(json.loads(node.config.read_text())[name]))
    hosted = _sections.hosted(name)
    settings = hosted.settings.of_file(file)
    given = {one: _NO_TIME for one in vars(settings) if one in ("error_patience", "link_patience")}
    settings = replace(settings, **given)

    def make() -> dp.Plugin:
        found = hosted.make(settings)
        assert isinstance(found, dp.Plugin)
        return found

    return make


def partitions(path: Path) -> Make:
    """Make partitions of AMD GPUs, and whole ones."""
    tree = AmdTree(path / "node", amd.machines.SMALL)
    for address, style in zip(tree.cards, ("DPX", "SPX", "QPX"), strict=False):
        tree.divide(address, style)
    settings = AmdSettings(
        sysfs_dir=tree.sys,
        dev_dir=tree.dev,
        resource_naming_strategy="mixed",
        state_file=None,
        error_patience=_NO_TIME,
    )
    return lambda: AmdPlugin(settings, pause=lambda _seconds: None)


def regions(path: Path) -> Make:
    """Make FPGAs and their management engines, by the older driver."""
    tree = FpgaTree(path / "node", OPAE)
    ports = tree.simple(AFU, AFU)
    tree.simple(AFU, address="0000:5e:00.0", number=1)
    virtual = tree.card("0000:3b:00.1", physical=ports[0].parents[2])
    tree.port(tree.region(virtual, 7), 70)
    tree.set_error(ports[0], "errors", "0x0")
    settings = FpgaSettings(sysfs_dir=tree.sys, mode="regiondevel", error_patience=_NO_TIME)
    return lambda: FpgaPlugin(settings)


def monitored(path: Path) -> Make:
    """Make virtual functions of Intel's GPUs, links, and monitoring."""
    tree = IntelTree(path / "node", intelgpu.machines.SMALL)
    tree.divide(intelgpu.machines.SMALL.cards[3].address, 2)
    settings = IntelGpuSettings(
        enable_monitoring=True,
        bypath="all",
        sysfs_dir=tree.sys,
        dev_dir=tree.dev,
        state_file=None,
        error_patience=_NO_TIME,
    )
    return lambda: IntelGpuPlugin(settings)


def functions(path: Path) -> Make:
    """Make functions of network cards: for DPDK, virtual ones, shared ones."""
    tree = RdmaTree(path / "node", rdma.machines.SAMPLE)
    pools = [
        {"resourceName": "vf", "selectors": {"isVirtual": True, "isRdma": True}},
        {"resourceName": "dpdk", "selectors": {"drivers": ["vfio-pci"]}},
        {"resourceName": "hca", "shares": 2, "selectors": {"isVirtual": False}},
        {"resourceName": "pf", "selectors": {"isVirtual": False}},
    ]
    file = path / "config.json"
    file.write_text(json.dumps({"resourceList": pools}))
    settings = RdmaSettings(
        resources=RdmaSettings.of_file(file).resources,
        devinfo_dir=path / "devinfo",
        state_file=path / "state/names.json",
        sysfs_dir=tree.sys,
        dev_dir=tree.dev,
        proc_net_dir=tree.net,
        link_patience=_NO_TIME,
    )
    return lambda: RdmaPlugin(settings)


_SELECTED: Final = """
devices:
  - name: serial
    groups: [{select: {subsystem: tty, driver: ftdi_sio}}]
    id: serial
  - name: stick
    groups: [{usb: [{vendor: "10c4", product: ea60}]}]
  - name: camera
    groups: [{select: {subsystem: usb, vendor: "046d"}, nodes: [video4linux, sound]}]
  - name: card
    groups: [{select: {subsystem: pci, vendor: "1002"}, nodes: [vfio]}]
  - name: gpu
    groups: [{select: {subsystem: drm, name: "renderD*"}}]
  - name: video
    groups: [{paths: [{path: "DEV/video*"}]}]
"""
_RULES: Final = """
- {devicematch: "^video[0-9]+$", nummaxdevices: 2}
- {devicematch: "^dri$", nummaxdevices: 1}
- {devicematch: "^tty.*", nummaxdevices: 1}
"""


def _generic(text: str, path: Path) -> Make:
    hardware = Hardware(path / "node")
    for port, serial in (("1-1", "A1"), ("1-2", "B2")):
        usb = hardware.usb(port, "0403:6001", int(port[-1]) + 1, serial=serial)
        hardware.behind_usb(usb, "1.0", "tty", f"ttyUSB{port[-1]}", driver="ftdi_sio")
    hardware.usb("1-3", "10c4:ea60", 7, serial="C3")
    camera = hardware.usb("1-4", "046d:0825", 8)
    hardware.behind_usb(camera, "1.0", "video4linux", "video0", index="0")
    hardware.behind_usb(camera, "1.2", "sound", "pcmC1D0c", node="snd/pcmC1D0c")
    for number, address in ((1, "0000:03:00.0"), (2, "0000:04:00.0")):
        hardware.pci(address, "1002:73ff", "030000", group=str(number), driver="vfio-pci")
        hardware.node(f"vfio/{number}")
        node = f"renderD{127 + number}"
        hardware.device(f"pci0000:00/{address}/drm/{node}", "drm", node=f"dri/{node}")
    hardware.node("vfio/vfio")
    hardware.node("video1")
    file = path / "config.yaml"
    file.write_text(text.replace("DEV", str(hardware.dev)))
    roots = Roots(hardware.dev, hardware.sys, hardware.udev)
    settings = GenericSettings.of_file(file)
    return lambda: GenericPlugin(settings, roots, cache=Cache())


def serial(path: Path) -> Make:
    """Make two adapters for the plugin that others are made of."""
    for number, node in enumerate(("/dev/null", "/dev/zero")):
        (path / f"ttyUSB{number}").symlink_to(node)
    return lambda: SerialPlugin(path)


SUBJECTS: Final[Mapping[str, Subject]] = {
    # The GPU plugin looks at this machine's own directories there.
    **{name: partial(as_installed, name) for name in ALL if name != "gpu"},
    "amd, partitions": partitions,
    "fpga, regions": regions,
    "generic, selected": partial(_generic, _SELECTED),
    "generic, rules": partial(_generic, _RULES),
    "intelgpu, monitored": monitored,
    "rdma, functions": functions,
    "template": serial,
}
"""All plugins, some with several configurations. The GPU plugin is apart: it needs a library."""


class Concern:
    """Which devices the files of a tree concern: those that have part of a path as a name.

    A file that has none of their names may concern all.
    """

    def __init__(self, devices: Iterable[dp.Device], root: Path) -> None:
        self._root = root
        devices = list(devices)
        self._nodes = {one.id: frozenset(one.nodes) for one in devices}
        self._names = {one.id: frozenset(_names(one)) for one in devices}
        self._known: dict[Path, frozenset[str]] = {}

    def learn(self, paths: Iterable[Path]) -> None:
        """Take note of paths before anything is done to them."""
        for path in paths:
            self.of(path)

    def of(self, path: Path) -> frozenset[str]:
        """Return the ids of the devices that ``path`` concerns."""
        if path not in self._known:
            words = {*_words(path, self._root)}
            found = {one for one, names in self._names.items() if _meet(names, words)}
            some = {self._nodes[one] for one in found} - {frozenset()}
            # A share has all nodes of the others, and one for monitoring those of all.
            wide = {nodes for nodes in {*self._nodes.values()} if any(x <= nodes for x in some)}
            wider = {one for one, nodes in self._nodes.items() if nodes in wide}
            self._known[path] = frozenset(found | wider or self._nodes)
        return self._known[path]


def _meet(names: frozenset[str], words: set[str]) -> bool:
    """Return whether they have one in common, or are functions of one card."""
    cards = tuple(found[1] for name in names if (found := _FUNCTION.fullmatch(name)))
    return bool(names & words) or bool(cards and any(one.startswith(cards) for one in words))


def _names(device: dp.Device) -> Iterator[str]:
    texts = [device.id, *map(str, device.attributes.values())]
    names = chain.from_iterable(text.split(",") for text in texts)
    yield from chain.from_iterable((name, re.split("::|-", name)[0]) for name in names)
    for host_path in (*(x.host_path for x in device.nodes), *(x.host_path for x in device.mounts)):
        yield Path(host_path).name


def _words(path: Path, root: Path) -> Iterator[str]:
    for place in (path, Path(os.path.realpath(path))):
        if place.is_relative_to(root):
            yield from place.relative_to(root).parts
    if not path.is_symlink():
        for _, folders, files in os.walk(path):
            yield from (*folders, *files)
