"""What KFD, the kernel's compute driver for AMD GPUs, says of its nodes and who uses them.

Each GPU, or each partition of one, is a node. A process that may not open the render node of a GPU,
as in an unprivileged container, cannot read most of the node.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin.kit.sysfs import AbsentError, OddError, Sysfs, SysfsError, shown

ROOT: Final = "class/kfd/kfd"
_NODES: Final = f"{ROOT}/topology/nodes"
_GENERATION: Final = f"{ROOT}/topology/generation_id"
_PROCESSES: Final = f"{ROOT}/proc"
_NUMBER: Final = re.compile("[0-9]{1,20}")
_XGMI: Final = 11
"""Type of a link that is not PCIe."""


class Link(NamedTuple):
    """A link from one node to another. The lesser of two is the better one."""

    is_pcie: bool
    weight: int
    """The kernel's distance."""


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU, or a partition of one, in KFD."""

    number: int
    gpu_id: int
    """Names it in the files of processes; 0 if it is not known."""
    properties: Mapping[str, int]
    folder: Path

    def get(self, name: str) -> int:
        """Return a property; 0 if this kernel does not have it."""
        return self.properties.get(name, 0)

    @property
    def minor(self) -> int:
        """Number of its render node."""
        return self.get("drm_render_minor")

    @property
    def slot(self) -> str:
        """PCI address of its GPU without the function, which may be the partition's number."""
        location = self.get("location_id")
        return f"{self.get('domain'):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"

    @property
    def partition(self) -> int:
        """Number of the partition in its GPU: the highest 4 bits, or on some kernels the lowest 3.

        A GPU that can be divided is always function 0.
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

    def note(self, error: SysfsError) -> None:
        """Note why a node could not be read. If it has gone since it was listed, that is fine."""
        if isinstance(error, OddError):
            self.problems.append(str(error))
        elif not isinstance(error, AbsentError):
            self.refused = self.refused or str(error)


def generation(sysfs: Sysfs) -> str:
    """Return a number that changes with the topology; empty if there is none."""
    return sysfs.text(_GENERATION)


def state(sysfs: Sysfs) -> object:
    """Return a value that differs while KFD writes its nodes again, and afterwards."""
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
        try:
            node = _node(sysfs, folder)
        except SysfsError as error:
            found.note(error)
        else:
            if node.get("simd_count"):
                found.nodes.setdefault(node.minor, node)
    return found


def _node(sysfs: Sysfs, folder: Path) -> Node:
    """Return a node, of a GPU or of a CPU; SysfsError if it cannot be read, or is odd."""
    properties = _properties(sysfs, folder)
    if properties.get("simd_count") and not properties.get("drm_render_minor"):
        raise OddError(folder / "properties", "a GPU without drm_render_minor")
    return Node(int(folder.name), number(sysfs.text(folder / "gpu_id")), properties, folder)


def _properties(sysfs: Sysfs, folder: Path) -> dict[str, int]:
    """Return a file of names and whole numbers; SysfsError if it is unreadable, or no such file."""
    found: dict[str, int] = {}
    for line in sysfs.read(folder / "properties").splitlines():
        name, _, value = line.strip().partition(" ")
        if not _NUMBER.fullmatch(value):
            raise OddError(folder / "properties", f"{shown(line)} is not a name and a number")
        found[name] = int(value)
    return found


def links(sysfs: Sysfs, node: Node) -> dict[int, Link]:
    """Return the best link to each other node, by its number. Unreadable links do not count."""
    found: dict[int, Link] = {}
    for kind in ("io_links", "p2p_links"):
        for folder in sysfs.matches(node.folder / kind, [_NUMBER]):
            try:
                read = _properties(sysfs, folder)
            except SysfsError:
                continue
            link = Link(read.get("type") != _XGMI, read.get("weight", 0))
            other = read.get("node_to", -1)
            found[other] = min(link, found.get(other, link))
    return found


def memory(sysfs: Sysfs, node: Node) -> int:
    """Return the size of a node's own memory in bytes; 0 if that is not known."""
    try:
        return _properties(sysfs, node.folder / "mem_banks/0").get("size_in_bytes", 0)
    except SysfsError:
        return 0


def users(sysfs: Sysfs, gpu_id: int) -> list[str]:
    """Return the processes that use a node, such as ``process 4711 (1.5 GiB)``, in order.

    They are those of the whole machine. A process that has neither memory nor a queue on the node
    does not count. This reads only counters of the driver, and never waits for the hardware.
    """
    found = []
    for folder in sysfs.matches(_PROCESSES, [_NUMBER]):
        queues = sysfs.matches(folder / "queues", [_NUMBER])
        if held := number(sysfs.text(folder / f"vram_{gpu_id}")):
            size = f"{held / 2**30:.1f} GiB" if held >= 2**29 else f"{max(held >> 20, 1)} MiB"
            found.append(f"process {folder.name} ({size})")
        elif str(gpu_id) in (sysfs.text(queue / "gpuid") for queue in queues):
            found.append(f"process {folder.name} (a queue)")
    return found


def number(text: str) -> int:
    """Return a decimal number of at most 20 digits; 0 for any other text."""
    return int(text) if _NUMBER.fullmatch(text) else 0
