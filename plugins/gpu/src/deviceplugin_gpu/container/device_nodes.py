"""The device nodes that a container gets: of GPUs and MIG devices, for rendering, and of IMEX."""

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import drm
from deviceplugin.kit.backoff import Clock
from deviceplugin.kit.health import absence
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_gpu import host
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.snapshot import WSL, Gpu

_CONTROL: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_MINOR: Final = re.compile(r"(gpu\d+/gi\d+(?:/ci\d+)?)/access (\d+)")

_CAPABILITIES: Final = "nvidia-caps"
_MINORS: Final = "driver/nvidia-caps/mig-minors"
_MAJOR: Final = re.compile(r"^ *(\d+) nvidia-caps$", re.MULTILINE)
_MODE: Final = 0o444
_CHECKS: Final = 50
_PAUSE: Final = 0.1
"""Seconds."""
_CHANNELS: Final = "nvidia-caps-imex-channels"
ImexChannels = dict[int, dp.DeviceNode]
"""Device nodes by the number of the channel."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The device nodes that a discovery found."""

    control: tuple[str, ...]
    """Paths below ``/dev`` of the nodes that every container needs."""
    capabilities: Mapping[str, int]
    """Minor numbers of the nodes that give access, by ``gpuN/giN`` and ``gpuN/giN/ciN``."""

    def of(self, unit: Unit, host_root: Path) -> tuple[dp.DeviceNode, ...]:
        """Return the nodes of ``unit``. On the host they are below ``host_root``."""
        if unit.uuid == WSL:
            return (dp.DeviceNode(str(host_root / "dev/dxg"), "/dev/dxg"),)
        paths = [*self.control]
        if unit.gpu.minor is not None:
            paths.append(f"nvidia{unit.gpu.minor}")
            paths += self._capabilities(unit)
        return _below(host_root, paths)

    def controls(self, host_root: Path) -> tuple[dp.DeviceNode, ...]:
        """Return the nodes that every container needs."""
        return _below(host_root, self.control)

    def _capabilities(self, unit: Unit) -> list[str]:
        found = self.capabilities_of(unit).values()
        return [f"{_CAPABILITIES}/nvidia-cap{minor}" for minor in found if minor is not None]

    def capabilities_of(self, unit: Unit) -> dict[str, int | None]:
        """Return the minor numbers of the nodes that give access to a MIG device, by name."""
        if unit.mig is None:
            return {}
        instance = f"gpu{unit.gpu.minor}/gi{unit.mig.gpu_instance}"
        both = (instance, f"{instance}/ci{unit.mig.compute_instance}")
        return {name: self.capabilities.get(name) for name in both}


def wait_for(unit: Unit, settings: GpuSettings, roots: Roots, clock: Clock) -> None:
    """Wait until a new MIG device has its nodes, if containers get those of the host's ``/dev``.

    The driver does not create them. Where it is the host's and may be written, this does.
    DevicePluginError if they do not appear.
    """
    needs_nodes = settings.device_list_strategy.cdi or settings.pass_device_specs
    if not needs_nodes and absence(roots.proc / _MINORS):
        return
    missing: list[str] = []
    for _ in range(_CHECKS):
        own = find(roots).capabilities_of(unit)
        minors = [minor for minor in own.values() if minor is not None]
        missing = [name for name, minor in own.items() if minor is None]
        if needs_nodes and not absence(roots.dev / _CAPABILITIES):
            missing += [path for minor in minors if (path := _missing_node(roots, minor))]
        if not missing:
            return
        clock.pause(Event(), _PAUSE)
    raise dp.DevicePluginError(
        f"{unit.uuid} has no device node {', '.join(missing)}: nvidia-modprobe creates it, or this "
        "plugin if it has the host's /dev/nvidia-caps and the capability MKNOD"
    )


def _missing_node(roots: Roots, minor: int) -> str:
    path = roots.dev / _CAPABILITIES / f"nvidia-cap{minor}"
    if absence(path) and (major := _MAJOR.search(host.text(roots.proc / "devices"))):
        with suppress(OSError):  # it may not, or somebody else was faster
            os.mknod(path, stat.S_IFCHR | _MODE, os.makedev(int(major[1]), minor))
    return str(path) if absence(path) else ""


def _below(host_root: Path, paths: Iterable[str]) -> tuple[dp.DeviceNode, ...]:
    return tuple(dp.DeviceNode(str(host_root / "dev" / path), f"/dev/{path}") for path in paths)


def find(roots: Roots) -> Nodes:
    """Return the nodes that exist now."""
    control = tuple(name for name in _CONTROL if not absence(roots.dev / name))
    minors = _MINOR.findall(host.text(roots.proc / _MINORS))
    return Nodes(control, {name: int(minor) for name, minor in minors})


def drm_nodes(gpu: Gpu, roots: Roots, host_root: Path) -> list[dp.DeviceNode]:
    """Return the nodes of ``gpu`` that exist, each under its name and under its PCI address.

    The second is a link on the host. In a container it is a node, because nothing creates links.
    """
    if not gpu.pci:
        return []
    found = drm.nodes(Sysfs(roots.sys), f"bus/pci/devices/{gpu.pci}")
    links = {f"dri/{found.card}": "card", f"dri/{found.render}": "render"}
    return [
        dp.DeviceNode(str(host_root / "dev" / name), f"/dev/{path}")
        for name in found.existing(roots.dev)
        for path in (name, f"dri/by-path/pci-{gpu.pci}-{links[name]}")
    ]


def imex_channels(settings: GpuSettings, roots: Roots) -> ImexChannels:
    """Return the channels of the settings that ``/dev`` has, or the driver's root if mounted.

    Raises:
        DiscoveryError: Some are missing, and they are required.
    """
    below = settings.driver_root_ctr_path / "dev"
    places: list[tuple[Path, Path]] = [
        (below, settings.dev_root or settings.driver_root),
        (roots.dev, settings.host_dev_root),
    ]
    found = {}
    for channel in settings.imex_channel_ids:
        name = f"{_CHANNELS}/channel{channel}"
        root = next((there for seen, there in places if not absence(seen / name)), None)
        if root is not None:
            found[channel] = dp.DeviceNode(str(root / "dev" / name), f"/dev/{name}")
    if settings.imex_required and len(found) < len(settings.imex_channel_ids):
        raise dp.DiscoveryError(f"imex-required: no {roots.dev}/{_CHANNELS}/channel0")
    return found


def missing_channels(wanted: Collection[int], found: Collection[int]) -> list[str]:
    """Return a warning for each channel that does not exist."""
    return [
        f"IMEX channel {channel} has no device node in /dev/{_CHANNELS}: containers do not get it"
        for channel in wanted
        if channel not in found
    ]
