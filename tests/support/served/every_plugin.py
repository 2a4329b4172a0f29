"""One of each plugin in this repository, with devices in a temporary directory."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import amd.machines
import intelgpu.machines
import rdma.machines
from amd.tree import AmdTree
from deviceplugin.plugin import Plugin
from deviceplugin_amd import AmdPlugin, AmdSettings
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices, Domains
from deviceplugin_gopher import GopherPlugin, GopherSettings
from deviceplugin_intelgpu import IntelGpuPlugin, IntelGpuSettings
from deviceplugin_rdma import RdmaPlugin, RdmaSettings
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings
from deviceplugin_template import SerialPlugin
from fpga.trees import AFU, DFL, OTHER_AFU, FpgaTree
from hardware.tree import Hardware
from intelgpu.tree import IntelTree
from rdma.tree import RdmaTree

_NO_TIME: Final = timedelta()


def gopher(path: Path) -> Plugin:
    """Return a plugin with three gophers."""
    for name in ("gary", "gerd", "gina"):
        (path / name).touch()
    return GopherPlugin(GopherSettings(directory=path))


def template(path: Path) -> Plugin:
    """Return a plugin with two serial adapters."""
    for number, node in enumerate(("/dev/null", "/dev/zero")):
        (path / f"ttyUSB{number}").symlink_to(node)
    return SerialPlugin(path)


def simulated(path: Path) -> Plugin:
    """Return a plugin with three devices of a file."""
    file = path / "devices.json"
    file.write_text(json.dumps({"resources": {"example.com/gpu": {"count": 3}}}))
    return SimulatedPlugin(SimulatedSettings(devices=file))


def generic(path: Path) -> Plugin:
    """Return a plugin with device nodes and shares of them."""
    hardware = Hardware(path)
    for name in ("video0", "video1", "fuse"):
        hardware.node(name)
    entries = ["{name: video, groups: [{paths: [{path: /dev/video*}]}]}"]
    entries.append("{name: fuse, groups: [{count: 3, paths: [{path: /dev/fuse}]}]}")
    settings = GenericSettings(device=Devices.parse(entries), domain=Domains(("squat.ai",)))
    return GenericPlugin(settings, Roots(hardware.dev, hardware.sys, hardware.udev))


def fpga(path: Path) -> Plugin:
    """Return a plugin with a card."""
    tree = FpgaTree(path / "node", DFL)
    tree.simple(AFU, OTHER_AFU)
    return FpgaPlugin(FpgaSettings(sysfs_dir=path / "node/sys", cdi_dir=path / "cdi", mode="af"))


def amd_gpu(path: Path) -> Plugin:
    """Return a plugin with the GPUs of a small machine."""
    tree = AmdTree(path / "node", amd.machines.SMALL)
    settings = AmdSettings(
        sysfs_dir=tree.sys,
        dev_dir=tree.dev,
        state_file=path / "health.json",
        error_patience=_NO_TIME,
    )
    return AmdPlugin(settings, tree.sysfs, None, lambda _seconds: None)


def intel_gpu(path: Path) -> Plugin:
    """Return a plugin with the GPUs of a small machine."""
    tree = IntelTree(path / "node", intelgpu.machines.SMALL)
    settings = IntelGpuSettings(
        sysfs_dir=tree.sys,
        dev_dir=tree.dev,
        state_file=path / "state.json",
        error_patience=_NO_TIME,
    )
    return IntelGpuPlugin(settings, tree.sysfs)


def network(path: Path) -> Plugin:
    """Return a plugin with shares of RDMA cards."""
    tree = RdmaTree(path / "node", rdma.machines.SAMPLE)
    file = path / "config.json"
    selectors = {
        "configList": [{"resourceName": "hca", "rdmaHcaMax": 2, "selectors": {"vendors": ["15b3"]}}]
    }
    file.write_text(json.dumps(selectors))
    settings = RdmaSettings(
        sysfs_dir=tree.sys,
        dev_dir=tree.dev,
        proc_net_dir=tree.net,
        state_file=path / "names.json",
        devinfo_dir=path / "devinfo",
        link_patience=_NO_TIME,
        resources=RdmaSettings.of_file(file).resources,
    )
    return RdmaPlugin(settings, tree.sysfs)


PLUGINS: Final[Mapping[str, Callable[[Path], Plugin]]] = {
    "gopher": gopher,
    "template": template,
    "simulated": simulated,
    "generic": generic,
    "fpga": fpga,
    "amd": amd_gpu,
    "intelgpu": intel_gpu,
    "rdma": network,
}
"""What makes each plugin in an empty directory. The GPU plugin is apart: it needs a library."""
