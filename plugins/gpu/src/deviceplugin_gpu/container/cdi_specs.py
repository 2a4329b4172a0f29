"""Our own CDI specifications, which a container runtime reads to make devices appear.

At each discovery, before devices are advertised, call ``classes`` for names and device nodes, then
``publish(directory, specifications(...))``, which returns the names that a runtime can resolve
now. A container with any other name would not start.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.cdi import Directory, Edits, Specification, is_device_name
from deviceplugin.kit.health import absence
from deviceplugin_gpu.container.imex import Channels
from deviceplugin_gpu.host import links

VENDOR: Final = "k8s.device-plugin.nvidia.com"
GPU: Final = "gpu"

Nodes = Sequence[dp.DeviceNode]

_NOT_BY_THE_RUNTIME: Final = Edits(env={"NVIDIA_VISIBLE_DEVICES": "void"})
_MODES: Final = {"gdrcopy": ("gdrdrv",), "gds": ("nvidia-fs*",), "mofed": ("infiniband/*",)}


def specifications(
    classes: Mapping[str, Mapping[str, Nodes]],
    control: Nodes,
    driver: Edits | None = None,
    *,
    alone: bool = True,
) -> list[Specification]:
    """Return a specification for each class that has a device.

    Args:
        classes: Device nodes by class and name of the device.
        control: Nodes that each GPU needs besides its own.
        driver: The driver's files that each GPU needs.
        alone: Whether CDI is the only strategy. NVIDIA's runtime then adds no GPU, whatever a
            variable of the image asks for.

    A device without a node of its own, or with a name that is invalid in CDI, is skipped: a runtime
    would reject the whole file.
    """
    made = []
    for name, devices in classes.items():
        shared = {node.container_path: node for node in (control if name == GPU else ())}
        own = {
            device: Edits(nodes=[node for node in nodes if node.container_path not in shared])
            for device, nodes in devices.items()
        }
        common = Edits(nodes=[*shared.values()])
        if name == GPU and alone:
            common += _NOT_BY_THE_RUNTIME
        described = {
            device: edits for device, edits in own.items() if edits and is_device_name(device)
        }
        if name == GPU and driver:
            common += driver
        if described:
            made.append(Specification(f"{VENDOR}/{name}", described, common))
    return made


def publish(directory: Directory, specifications: Iterable[Specification]) -> frozenset[str]:
    """Make ``directory`` contain these specifications, and no others of ours.

    Returns the qualified names of their devices.

    Raises:
        DiscoveryError: A file cannot be written or removed. Do not allocate: a container would
            lack its devices, or not start.
    """
    try:
        return directory.publish(specifications)
    except OSError as error:
        raise dp.DiscoveryError(
            f"cdi-dir {directory.path}: {error.strerror}: mount it from the host, writable, or "
            "use a device-list-strategy without CDI"
        ) from error


def extras(
    dev: Path, host_root: Path, modes: Iterable[str], channels: Channels
) -> dict[str, dict[str, Nodes]]:
    """Return the classes that containers get beside GPUs, with the nodes that exist.

    Args:
        dev: ``/dev`` as this process sees it.
        host_root: The directory on the host that has ``/dev``.
        modes: Those of gdrcopy, gds and mofed that are enabled.
        channels: IMEX channels that exist.
    """
    found: dict[str, dict[str, Nodes]] = {}
    for mode in modes:
        paths = sorted(path for pattern in _MODES[mode] for path in links.matches(dev, pattern))
        found[mode] = {"all": _nodes(paths, dev, host_root)}
    found["imex-channel"] = {str(channel): [node] for channel, node in channels.items()}
    return found


def _nodes(paths: Iterable[Path], dev: Path, host_root: Path) -> Nodes:
    there = [path for path in paths if not absence(path)]
    names = [str(path.relative_to(dev)) for path in there if not os.path.isdir(path)]  # noqa: PTH112 - never raises
    return [dp.DeviceNode(str(host_root / "dev" / name), f"/dev/{name}") for name in names]
