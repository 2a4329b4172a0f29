"""The CDI names that the container runtime gets for devices, and the files that resolve them.

A container with a name that the runtime cannot resolve would not start, so ``Publisher.publish``
returns those that it can. It is called at each discovery, before devices are advertised.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.cdi import Directory, Edits, Specification, is_device_name
from deviceplugin.kit.health import absence
from deviceplugin.kit.log import Problems
from deviceplugin_gpu import host
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import device_nodes, nvidia_ctk
from deviceplugin_gpu.container.allocation import enabled_modes
from deviceplugin_gpu.container.device_nodes import ImexChannels, Nodes
from deviceplugin_gpu.container.driver_files import DriverFiles, VersionFiles
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.snapshot import WSL

VENDOR: Final = "k8s.device-plugin.nvidia.com"
GPU: Final = "gpu"

_DeviceNodes = Sequence[dp.DeviceNode]

_NOT_BY_THE_RUNTIME: Final = Edits(env={"NVIDIA_VISIBLE_DEVICES": "void"})
_NODES_OF_MODES: Final = {
    "gdrcopy": ("gdrdrv",),
    "gds": ("nvidia-fs*",),
    "mofed": ("infiniband/*",),
}

log = logging.getLogger(__name__)
_UNUSED: Final = "only containers of NVIDIA's runtime get the driver"
_GENERATE: Final = "run nvidia-ctk cdi generate, or remove it"
_NO_NAME: Final = (
    "no CDI specification has it: it has no device node, or a UUID that CDI does not take, and "
    "nvidia-ctk has generated none"
)
_INTEGRATED: Final = (
    "only the CDI specification of NVIDIA's toolkit has what an integrated GPU needs: "
    f"{nvidia_ctk.GENERATE}"
)


def specifications(
    classes: Mapping[str, Mapping[str, _DeviceNodes]],
    control: _DeviceNodes,
    driver: Edits | None = None,
    *,
    alone: bool = True,
) -> list[Specification]:
    """Return a specification for each class that has a device, by its name.

    Each GPU needs the nodes ``control`` and the files of ``driver`` too. If CDI is the only
    strategy (``alone``), NVIDIA's runtime adds no GPU, whatever a variable of the image asks for.

    A device without a node of its own, or with a name that is invalid in CDI, is skipped: a runtime
    would reject the whole file.
    """
    made = []
    for name, devices in classes.items():
        common = Edits(nodes=control) if name == GPU else Edits()
        shared = {node.container_path for node in common.nodes}
        own = {
            device: Edits(nodes=[node for node in nodes if node.container_path not in shared])
            for device, nodes in devices.items()
            if is_device_name(device)
        }
        if name == GPU and alone:
            common += _NOT_BY_THE_RUNTIME
        if name == GPU and driver:
            common += driver
        if described := {device: edits for device, edits in own.items() if edits}:
            made.append(Specification(f"{VENDOR}/{name}", described, common))
    return made


def _publish(directory: Directory, specifications: Iterable[Specification]) -> frozenset[str]:
    """Make ``directory`` contain these specifications, and no others of ours.

    Returns the qualified names of their devices. Do not allocate if a file cannot be written or
    removed: a container would lack its devices, or not start.
    """
    try:
        return directory.publish(specifications)
    except OSError as error:
        raise dp.DiscoveryError(
            f"cdi-dir {directory.path}: {error.strerror}: mount it from the host, writable, or "
            "use a device-list-strategy without CDI"
        ) from error


def extras(
    dev: Path, host_root: Path, modes: Iterable[str], channels: ImexChannels
) -> dict[str, dict[str, _DeviceNodes]]:
    """Return the classes that containers get beside GPUs, with the nodes that exist.

    ``host_root`` is the directory on the host that has ``/dev``.
    """
    found: dict[str, dict[str, _DeviceNodes]] = {}
    for mode in modes:
        paths = {path for one in _NODES_OF_MODES[mode] for path in host.matches(dev, one)}
        found[mode] = {"all": _nodes(sorted(paths), dev, host_root)}
    found["imex-channel"] = {str(channel): [node] for channel, node in channels.items()}
    return found


def _nodes(paths: Iterable[Path], dev: Path, host_root: Path) -> _DeviceNodes:
    there = [path for path in paths if not absence(path)]
    names = [str(path.relative_to(dev)) for path in there if not os.path.isdir(path)]  # noqa: PTH112 - never raises
    return [dp.DeviceNode(str(host_root / "dev" / name), f"/dev/{name}") for name in names]


@dataclass(frozen=True, slots=True)
class CdiNames:
    """What the runtime can resolve now."""

    devices: Mapping[str, str] = field(default_factory=dict)
    """Qualified names by the id of a unit."""
    others: tuple[str, ...] = ()
    """Names that each container gets beside its GPUs."""
    without_driver: Mapping[str, str] = field(default_factory=dict)
    """Why a container would not get the driver with a unit, by id."""
    driver: Edits = field(default_factory=Edits)
    """The driver's files that containers get, or got before these were lost; empty for none."""

    def problems(self, units: Iterable[Unit]) -> dict[str, str]:
        """Return why units cannot be allocated, by id."""
        discrete = (unit for unit in units if not unit.gpu.is_integrated)
        found = {unit.id: _NO_NAME for unit in discrete if unit.id not in self.devices}
        return {**found, **self.without_driver}


def _name(unit: Unit) -> str:
    """Return the name of a unit in our specification. It never changes.

    The kubelet gives a restarted container its old names, and an index can be another GPU after
    the next boot. Drivers before R470 have slashes in the UUIDs of MIG devices.
    """
    return unit.uuid.replace("/", ":")


class Publisher:
    """Writes our own CDI specifications, and prefers those of the vendor's toolkit."""

    def __init__(self, settings: GpuSettings, roots: Roots, toolkit: Toolkit | None = None) -> None:
        self._settings = settings
        self._roots = roots
        self._directory = Directory(settings.cdi_dir, VENDOR)
        self._toolkit = toolkit or Toolkit()
        self._stale: frozenset[Path] = frozenset()
        self._files = DriverFiles(settings.driver_root_ctr_path, settings.driver_root)
        self._missing = Problems(log)

    def publish(
        self,
        units: Sequence[Unit],
        nodes: Nodes,
        channels: ImexChannels,
        driver: str = "",
        before: Edits | None = None,
    ) -> CdiNames:
        """Make ``units`` and IMEX ``channels`` known to the runtime, and return their names.

        No container starts with device nodes and without the driver that it needs with them. If
        CDI is the only strategy, a specification without the driver is not written. One that loses
        it keeps naming the files that are gone (``before``), whatever the strategies: a runtime
        then refuses to start a container that got its names earlier. ``driver`` is the running
        version; empty if unknown.
        """
        settings = self._settings
        root = settings.host_dev_root
        discrete = [unit for unit in units if not unit.gpu.is_integrated]
        each = {unit.uuid: unit for unit in discrete}.values()  # one of the replicas of a device
        given = {_name(unit): [*nodes.of(unit, root), *self._drm(unit)] for unit in each}
        is_wsl = any(unit.uuid == WSL for unit in units)
        found = self._files.of_wsl() if is_wsl else self._files.find(driver)
        alone = not settings.device_list_strategy.plain
        lost = before if found.problem and before else None
        edits = lost or self._edits(found)
        classes: dict[str, Mapping[str, Sequence[dp.DeviceNode]]] = {
            **({} if alone and found.problem and not lost else {GPU: given}),
            **extras(self._roots.dev, root, enabled_modes(settings), channels),
        }
        published = _publish(
            self._directory,
            specifications(classes, nodes.controls(root), edits, alone=alone),
        )
        others = published - {f"{VENDOR}/{GPU}={one}" for one in given}
        devices = self._generated(units, given, driver, has_own=not found.problem)
        bare = [unit.id for unit in discrete if found.problem and unit.id not in devices]
        withheld = dict.fromkeys(bare if alone or lost else (), found.problem)
        lacking = [unit.id for unit in units if unit.gpu.is_integrated and unit.id not in devices]
        withheld |= dict.fromkeys(lacking if alone else (), _INTEGRATED)
        reasons = [found.problem] * bool(bare) + [_INTEGRATED] * bool(lacking)
        told = [one if one in withheld.values() else f"{one}; {_UNUSED}" for one in reasons]
        self._missing.say_all("driver libraries not found", told)
        for unit in discrete:
            own = f"{VENDOR}/{GPU}={_name(unit)}"
            if own in published:
                devices.setdefault(unit.id, own)
        kept = edits if lost or not found.problem else Edits()
        return CdiNames(devices, tuple(sorted(others)), withheld, kept)

    def _drm(self, unit: Unit) -> list[dp.DeviceNode]:
        if unit.mig is not None:  # it cannot render, and the node is that of the whole GPU
            return []
        # The kernel creates these in the host's /dev.
        return device_nodes.drm_nodes(unit.gpu, self._roots, self._settings.dev_root or Path("/"))

    def _edits(self, found: VersionFiles) -> Edits:
        if not found.libraries:
            return found.edits
        program = nvidia_ctk.hook_program(self._settings)
        return found.edits + nvidia_ctk.hook_edits(program, found.directories)

    def _generated(
        self,
        units: Iterable[Unit],
        nodes: Mapping[str, Sequence[dp.DeviceNode]],
        driver: str,
        *,
        has_own: bool,
    ) -> dict[str, str]:
        """Return the names of units in the toolkit's specifications, by id.

        If ours has the driver's libraries (``has_own``), names that are an index are skipped: a
        restarted container keeps its name, and an index can be another GPU by then.
        """
        generated = self._toolkit.find()
        lost = () if has_own else generated.files
        gone = {file.path: file.gone(self._files.lacks) for file in lost}
        found, stale = {}, dict[Path, str]()
        for unit in units:
            paths = [node.container_path for node in nodes.get(_name(unit), ())]
            match = generated.match(unit.gpu, unit.mig, driver, paths)
            if match.file and (why := match.stale or gone.get(match.file, "")):
                stale.setdefault(match.file, why)
            elif match.name and not (has_own and match.is_index):
                found[unit.id] = match.name
        for path in stale.keys() - self._stale:
            fields = {"file": str(path), "reason": stale[path], "advice": _GENERATE}
            log.warning("stale CDI specification ignored", extra=fields)
        self._stale = frozenset(stale)
        return found
