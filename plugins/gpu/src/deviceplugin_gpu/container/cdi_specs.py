"""CDI specifications of our own, which a container runtime reads to make devices appear.

At each discovery, before devices are advertised: ``classes`` of names and device nodes, then
``Directory(path).publish(documents(...))``, which returns the names that a runtime can resolve
now. Give a container no other name: it would not start. The directory is on a file system that a
reboot empties, and what is there already is not written again.

A specification here has device nodes, and a variable that keeps NVIDIA's own runtime from adding
other GPUs. What NVIDIA's toolkit generates has the driver's libraries and programs, firmware,
sockets and hooks too, for which one has to know the driver's files on the host; ``nvidia_ctk``
finds it. With our own, the image or another device list strategy must bring the libraries.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_gpu.host import atomic_files

VENDOR: Final = "k8s.device-plugin.nvidia.com"
GPU: Final = "gpu"

Nodes = Sequence[dp.DeviceNode]
Document = Mapping[str, Any]

_OLDEST: Final = "0.3.0"
_WITH_HOST_PATHS: Final = "0.5.0"
_WITH_DOTS_IN_CLASSES: Final = "0.6.0"
_MODES: Final = {"gdrcopy": ("gdrdrv",), "gds": ("nvidia-fs*",), "mofed": ("infiniband/*",)}
_CHANNELS: Final = "nvidia-caps-imex-channels"


def documents(
    classes: Mapping[str, Mapping[str, Nodes]], control: Nodes, *, alone: bool = True
) -> dict[str, Document]:
    """Return a specification for each class that has a device, by class.

    Args:
        classes: Device nodes by class and name of the device.
        control: Nodes that each GPU needs, whether they are among its own or not.
        alone: Whether containers are told of GPUs by CDI only. NVIDIA's runtime then adds none,
            whatever a variable of the image asks for.

    A device without a node of its own is left out: no runtime takes one.
    """
    made: dict[str, Document] = {}
    for name, devices in classes.items():
        shared = {node.container_path: node for node in (control if name == GPU else ())}
        own = {
            device: [node for node in nodes if node.container_path not in shared]
            for device, nodes in devices.items()
        }
        edits = _edits([*shared.values()])
        if name == GPU and alone:
            edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"], **edits}
        document = {
            "kind": f"{VENDOR}/{name}",
            "devices": [
                {"name": device, "containerEdits": _edits(nodes)}
                for device, nodes in own.items()
                if nodes
            ],
            **({"containerEdits": edits} if edits else {}),
        }
        if document["devices"]:
            made[name] = {"cdiVersion": minimum_version(document), **document}
    return made


def extras(
    dev: Path, host_root: Path, modes: Iterable[str], channels: Iterable[int]
) -> dict[str, dict[str, Nodes]]:
    """Return the classes that containers get beside GPUs, as far as their nodes exist.

    Args:
        dev: ``/dev`` as this process sees it.
        host_root: What ``/dev`` is below on the host.
        modes: Of gdrcopy, gds, mofed.
        channels: IMEX channels.
    """
    found: dict[str, dict[str, Nodes]] = {}
    for mode in modes:
        paths = sorted(path for pattern in _MODES[mode] for path in dev.glob(pattern))
        found[mode] = {"all": _nodes(paths, dev, host_root)}
    paths_by_name = {str(channel): dev / _CHANNELS / f"channel{channel}" for channel in channels}
    found["imex-channel"] = {
        name: _nodes([path], dev, host_root) for name, path in paths_by_name.items()
    }
    return found


def minimum_version(document: Document) -> str:
    """Return the oldest version of CDI that has all that ``document`` uses.

    A runtime refuses versions that are newer than what it knows.
    """
    edits = [document.get("containerEdits", {})]
    edits += [device["containerEdits"] for device in document["devices"]]
    if "." in document["kind"].partition("/")[2]:
        return _WITH_DOTS_IN_CLASSES
    if any(device["name"][0].isdigit() for device in document["devices"]) or any(
        "hostPath" in node for edit in edits for node in edit.get("deviceNodes", ())
    ):
        return _WITH_HOST_PATHS
    return _OLDEST


class Directory:
    """The directory with specifications, of which only those with our vendor's name are ours.

    They stay when the plugin ends: containers may start again without it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def publish(self, documents: Mapping[str, Document]) -> frozenset[str]:
        """Have the directory contain ``documents`` and none of ours beside.

        Returns the qualified names of their devices.

        Raises:
            DiscoveryError: A file cannot be written or removed. Do not allocate: a container would
                be without its devices, or not start.
        """
        files = {f"{VENDOR}-{name}.json": document for name, document in documents.items()}
        try:
            for file, document in files.items():
                atomic_files.write(self._path / file, json.dumps(document, indent=2) + "\n")
            for path in self._ours():
                if path.name not in files:
                    with suppress(FileNotFoundError):
                        path.unlink()
        except OSError as error:
            raise dp.DiscoveryError(
                f"cdi-dir {self._path}: {error.strerror}: mount it from the host, writable, or "
                "choose another device-list-strategy than CDI"
            ) from error
        return frozenset(
            f"{document['kind']}={device['name']}"
            for document in documents.values()
            for device in document["devices"]
        )

    def _ours(self) -> list[Path]:
        """Return our files, drafts that were left behind included."""
        if not self._path.is_dir():
            return []
        return sorted(
            path
            for path in self._path.iterdir()
            if path.name.startswith((f"{VENDOR}-", f".{VENDOR}-")) and not path.is_dir()
        )


def _nodes(paths: Iterable[Path], dev: Path, host_root: Path) -> Nodes:
    names = [str(path.relative_to(dev)) for path in paths if path.exists() and not path.is_dir()]
    return [dp.DeviceNode(str(host_root / "dev" / name), f"/dev/{name}") for name in names]


def _edits(nodes: Nodes) -> dict[str, Any]:
    return {"deviceNodes": [_node(node) for node in nodes]} if nodes else {}


def _node(node: dp.DeviceNode) -> dict[str, str]:
    written = {"path": node.container_path, "permissions": node.permissions}
    if node.host_path != node.container_path:
        written["hostPath"] = node.host_path
    return written
