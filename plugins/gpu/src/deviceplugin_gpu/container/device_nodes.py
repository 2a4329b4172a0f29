"""The device nodes that a container with a GPU or MIG device needs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.health import absence
from deviceplugin_gpu.host.roots import Roots
from deviceplugin_gpu.offer.resources import Unit
from deviceplugin_gpu.snapshot import WSL

_CONTROL: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_MINOR: Final = re.compile(r"(gpu\d+/gi\d+(?:/ci\d+)?)/access (\d+)")


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
        if unit.mig is None:
            return []
        instance = f"gpu{unit.gpu.minor}/gi{unit.mig.gpu_instance}"
        both = (instance, f"{instance}/ci{unit.mig.compute_instance}")
        found = [self.capabilities.get(name) for name in both]
        return [f"nvidia-caps/nvidia-cap{minor}" for minor in found if minor is not None]


def _below(host_root: Path, paths: Iterable[str]) -> tuple[dp.DeviceNode, ...]:
    return tuple(dp.DeviceNode(str(host_root / "dev" / path), f"/dev/{path}") for path in paths)


def find(roots: Roots) -> Nodes:
    """Return the nodes that exist now."""
    control = tuple(name for name in _CONTROL if not absence(roots.dev / name))
    try:
        text = (roots.proc / "driver/nvidia-caps/mig-minors").read_text(errors="replace")
    except OSError:
        text = ""
    return Nodes(control, {name: int(minor) for name, minor in _MINOR.findall(text)})
