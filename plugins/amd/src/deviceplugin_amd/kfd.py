"""What KFD says, the kernel's compute driver for AMD GPUs: its nodes, and who uses them.

Every GPU, or every partition of one, is a node. To a process that may not open the render node of
a GPU, as in a container that is not privileged, the kernel refuses nearly all of its node.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deviceplugin.kit.sysfs import AbsentError, OddError, Sysfs, SysfsError, shown

ROOT: Final = "class/kfd/kfd"
_NODES: Final = f"{ROOT}/topology/nodes"
_GENERATION: Final = f"{ROOT}/topology/generation_id"
_PROCESSES: Final = f"{ROOT}/proc"
_NUMBER: Final = re.compile("[0-9]{1,20}")
_XGMI: Final = 11
"""Type of a link that is not PCIe."""


@dataclass(frozen=True, slots=True)
class Link:
    """A way from one node to another."""

    is_xgmi: bool
    weight: int
    """The kernel's distance: less is nearer."""


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU or a partition of one, as KFD has it."""

    number: int
    gpu_id: int
    """By which processes name it; 0 if that is not known."""
    properties: Mapping[str, int]
    folder: Path

    def get(self, name: str) -> int:
        """Return a property; 0 for one that this kernel does not have."""
        return self.properties.get(name, 0)

    @property
    def minor(self) -> int:
        """Number of its render node."""
        return self.get("drm_render_minor")

    @property
    def slot(self) -> str:
        """PCI address of its GPU, without the function: it may be the number of the partition."""
        location = self.get("location_id")
        return f"{self.get('domain'):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"

    @property
    def partition(self) -> int:
        """Number of the partition in its GPU: the highest 4 bits, or on some kernels the lowest 3.

        A GPU that has partitions is always function 0.
        """
        location = self.get("location_id")
        return location >> 28 or location & 7


@dataclass(slots=True)
class Topology:
    """All nodes of GPUs that could be read."""

    nodes: dict[int, Node] = field(default_factory=dict)
    """By render minor."""
    exists: bool = True
    refused: str = ""
    """Why nodes could not be read; empty if all were."""
    problems: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether what is not here has no node."""
        return self.exists and not (self.refused or self.problems)


def generation(sysfs: Sysfs) -> str:
    """Return a number that changes with the topology; empty where there is none."""
    return sysfs.text(_GENERATION)


def state(sysfs: Sysfs) -> object:
    """Return what is another one while nodes are written anew, and afterwards."""
    try:
        return generation(sysfs), tuple(sysfs.names(_NODES))
    except SysfsError as error:
        return generation(sysfs), str(error)


def topology(sysfs: Sysfs) -> Topology:
    """Return the nodes of GPUs. Never raises."""
    found = Topology()
    try:
        folders = sysfs.entries(_NODES, _NUMBER)
    except AbsentError:
        return Topology(exists=False)
    except SysfsError as error:
        return Topology(problems=[str(error)])
    for folder in folders:
        if (node := _readable(sysfs, folder, found)) and node.get("simd_count"):
            found.nodes.setdefault(node.minor, node)
    return found


def _readable(sysfs: Sysfs, folder: Path, found: Topology) -> Node | None:
    """Return a node, or None; why it cannot be read is added to ``found``."""
    try:
        return _node(sysfs, folder)
    except AbsentError:  # gone since it was listed
        return None
    except OddError as error:
        found.problems.append(str(error))
    except SysfsError as error:
        found.refused = found.refused or str(error)
    return None


def _node(sysfs: Sysfs, folder: Path) -> Node:
    properties = _properties(sysfs, folder)
    if not properties.get("simd_count"):
        return Node(int(folder.name), 0, properties, folder)
    if not properties.get("drm_render_minor"):
        raise OddError(folder / "properties", "a GPU without drm_render_minor")
    gpu_id = sysfs.text(folder / "gpu_id")
    number = int(gpu_id) if _NUMBER.fullmatch(gpu_id) else 0
    return Node(int(folder.name), number, properties, folder)


def _properties(sysfs: Sysfs, folder: Path) -> dict[str, int]:
    """Return what is in a file of names and whole numbers.

    Raises:
        SysfsError: It cannot be read, or is none.
    """
    found: dict[str, int] = {}
    for line in sysfs.read(folder / "properties").splitlines():
        name, _, value = line.strip().partition(" ")
        if not _NUMBER.fullmatch(value):
            raise OddError(folder / "properties", f"{shown(line)} is not a name and a number")
        found[name] = int(value)
    return found


def links(sysfs: Sysfs, node: Node) -> dict[int, Link]:
    """Return the links of a node by the number of the node at the other end, the best of each.

    What cannot be read is no link.
    """
    found: dict[int, Link] = {}
    for kind in ("io_links", "p2p_links"):
        for folder in sysfs.matches(node.folder / kind, [_NUMBER]):
            try:
                read = _properties(sysfs, folder)
            except SysfsError:
                continue
            link = Link(read.get("type") == _XGMI, read.get("weight", 0))
            other = read.get("node_to", -1)
            if other not in found or (not link.is_xgmi, link.weight) < (
                not found[other].is_xgmi,
                found[other].weight,
            ):
                found[other] = link
    return found


def memory(sysfs: Sysfs, node: Node) -> int:
    """Return the bytes of a node's own memory; 0 where that is not known."""
    try:
        return _properties(sysfs, node.folder / "mem_banks/0").get("size_in_bytes", 0)
    except SysfsError:
        return 0


def users(sysfs: Sysfs, gpu_id: int) -> list[str]:
    """Return the processes that use a node, such as ``process 4711 (1.5 GiB)``, in order.

    They are those of the whole machine. One that has opened the GPU and has neither memory nor a
    queue on it does not count. Only counters that the driver keeps are read: nothing waits for the
    hardware.
    """
    return [
        f"process {folder.name} ({use})"
        for folder in sysfs.matches(_PROCESSES, [_NUMBER])
        if (use := _use(sysfs, folder, gpu_id))
    ]


def _use(sysfs: Sysfs, process: Path, gpu_id: int) -> str:
    text = sysfs.text(process / f"vram_{gpu_id}")
    held = int(text) if _NUMBER.fullmatch(text) else 0
    if held:
        return _size(held)
    return "a queue" if str(gpu_id) in _queues(sysfs, process) else ""


def _queues(sysfs: Sysfs, process: Path) -> Iterator[str]:
    for queue in sysfs.matches(process / "queues", [_NUMBER]):
        yield sysfs.text(queue / "gpuid")


def _size(held: int) -> str:
    return f"{held / 2**30:.1f} GiB" if held >= 2**29 else f"{max(held >> 20, 1)} MiB"
