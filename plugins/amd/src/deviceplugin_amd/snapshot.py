"""What is on the node: GPUs by the PCI bus, partitions by KFD, and the device nodes of both."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Final

from deviceplugin.kit import drm, pci, vfio
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs, SysfsError, natural
from deviceplugin_amd import gpus, kfd
from deviceplugin_amd.gpus import WHOLE, Gpu, Style

_PARTITION: Final = re.compile("amdgpu_xcp[._][0-9]+")
"""The devices of a GPU's partitions except the first, on newer and on older kernels."""
SMALLEST: Final = "cpx"
"""Each partition is one die of compute units (XCC); how many there are depends on the model."""
PARTS: Final = {WHOLE: 1, "dpx": 2, "tpx": 3, "qpx": 4}
MANY: Final = 16
"""As many partitions as KFD can number."""
_QUIET: Final = 0.1
"""Seconds without a change of KFD's nodes: if one GPU changes, KFD writes all nodes again."""
_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Unit:
    """A GPU or a partition of one: what a container gets."""

    gpu: Gpu
    nodes: tuple[str, ...]
    """Device nodes below ``/dev`` that exist: the card's and the render node."""
    node: kfd.Node | None
    number: int | None = None
    """The partition's number in its GPU; None for a whole GPU."""
    missing: str = ""
    """Why a container could not use it; empty if nothing is missing."""
    doubt: str = ""
    """Why it is not known whether it is as in the previous snapshot; empty if it is known."""

    @property
    def id(self) -> str:
        """The PCI address; for a partition also the GPU's style and the partition's number.

        So a whole GPU, and partitions of different styles, never have the same id.
        """
        if self.number is None:
            return self.gpu.address
        return f"{self.gpu.address}-{self.gpu.style}-{self.number}"

    @property
    def gpu_id(self) -> int:
        """Names it in KFD's files of processes; 0 if it is not known."""
        return self.node.gpu_id if self.node else 0


@dataclass(slots=True)
class Snapshot:
    """What is on the node at one time."""

    gpus: list[Gpu] = field(default_factory=list)
    nodes: dict[int, drm.Nodes] = field(default_factory=dict)
    """The device nodes of GPUs and partitions, by render minor."""
    units: list[Unit] = field(default_factory=list)
    topology: kfd.Topology = field(default_factory=kfd.Topology)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why GPUs, or some of their partitions, are not advertised, by PCI address."""
    claimed: set[str] = field(default_factory=set)
    """GPUs of which claims have partitions, by PCI address."""
    waiting: list[pci.Function] = field(default_factory=list)
    """GPUs that no driver is bound to; virtual functions wait for virtual machines."""
    foreign: list[pci.Function] = field(default_factory=list)
    """GPUs with a driver that serves neither containers nor virtual machines."""


class Reader:
    """Takes snapshots. It remembers each GPU's style for times when the kernel does not say it."""

    def __init__(
        self, sysfs: Sysfs, dev: Path, pause: Callable[[float], object] | None = None
    ) -> None:
        self.sysfs, self.dev = self._sysfs, self._dev = sysfs, dev
        self._pause = pause or Event().wait
        self._styles: dict[str, Style] = {}
        self._names: dict[tuple[str, str], str] = {}
        """Product names by address and model: one that is unreadable for once would rename it."""
        self._last: Sequence[Unit] = ()
        self._settled: object = None

    def read(self) -> Snapshot:
        """Return what is there now. Never raises."""
        found = Snapshot()
        for _ in range(_TRIES):
            before = self._settle()
            found = self._read()
            if kfd.state(self._sysfs) == before:
                break
        found.units = sorted([*found.units, *self._doubtful(found)], key=lambda x: natural(x.id))
        self._last = found.units
        return found

    def _settle(self) -> object:
        """Wait until KFD has written its nodes, if they differ from the previous snapshot's."""
        for _ in range(_TRIES):
            now = kfd.state(self._sysfs)
            if now == self._settled:
                break
            self._settled = now
            self._pause(_QUIET)
        return self._settled

    def _doubtful(self, found: Snapshot) -> Iterator[Unit]:
        """Yield units of the previous snapshot whose GPU is there and is now inconsistent."""
        known = {unit.id for unit in found.units}
        there = {gpu.address: gpu for gpu in found.gpus}
        for unit in self._last:
            gpu = there.get(unit.gpu.address)
            why = found.skipped.get(unit.gpu.address)
            if why and gpu and gpu.style == unit.gpu.style and unit.id not in known:
                yield replace(unit, gpu=gpu, doubt=why)

    def _read(self) -> Snapshot:
        tree, found = Tree(self._sysfs, dev=self._dev), Snapshot()
        cards = [one for one in pci.functions(tree) if gpus.is_gpu(one)]
        found.waiting = [card for card in cards if not (card.driver or card.physical_function)]
        found.foreign = [card for card in cards if _is_foreign(card)]
        found.topology = kfd.topology(self._sysfs)
        for card in cards:
            if card.driver != gpus.DRIVER:
                continue
            try:
                gpu = gpus.read(self._sysfs, card, self._styles.get(card.address))
            except SysfsError as error:
                found.skipped[card.address] = str(error)
            else:
                self._styles[card.address] = gpu.style
                known = self._names.get((gpu.address, gpu.product), "")
                self._names[gpu.address, gpu.product] = gpu.name or known
                found.gpus.append(replace(gpu, name=gpu.name or known))
        partitions = self._sysfs.matches("devices/platform", [_PARTITION])
        of_partitions = (drm.nodes(self._sysfs, folder) for folder in partitions)
        # A GPU's are not read twice: what vanishes in between would be in one of the two only.
        for nodes in (*(gpu.nodes for gpu in found.gpus), *of_partitions):
            if nodes.minor is not None:
                found.nodes[nodes.minor] = nodes
        found.units = list(_Units(found, self._dev))
        return found


def _is_foreign(card: pci.Function) -> bool:
    is_for_machines = card.is_divided or vfio.is_reserved(card.device)
    return card.driver not in {"", gpus.DRIVER} and not is_for_machines


class _Units:
    """The units of a snapshot's GPUs and nodes. Adds to ``skipped`` why others are not there."""

    def __init__(self, found: Snapshot, dev: Path) -> None:
        self._found = found
        self._dev = dev
        self._owners = {gpu.minor: gpu for gpu in found.gpus if gpu.minor is not None}

    def __iter__(self) -> Iterator[Unit]:
        own: dict[str, list[kfd.Node]] = {gpu.address: [] for gpu in self._found.gpus}
        for node in self._found.topology.nodes.values():
            if gpu := self._owner(node):
                own[gpu.address].append(node)
        for gpu in self._found.gpus:
            nodes = own[gpu.address]
            if why := self._inconsistency(gpu, nodes):
                self._found.skipped[gpu.address] = why
            elif gpu.style.is_whole:
                yield unit(self._found, self._dev, gpu, gpu.minor)
            else:
                yield from self._parts(gpu, nodes)

    def _owner(self, node: kfd.Node) -> Gpu | None:
        """Return the GPU that a node is, or is a part of.

        Its parts have the GPU's unique id; without one they have its PCI address.
        """
        if node.minor in self._owners:
            return self._owners[node.minor]
        nodes, unique = self._found.topology.nodes, node.get("unique_id")
        for minor, gpu in self._owners.items():
            if unique and minor in nodes and nodes[minor].get("unique_id") == unique:
                return gpu
        slots = {gpu.address.rpartition(".")[0]: gpu for gpu in self._found.gpus}
        return slots.get(node.slot)

    def _inconsistency(self, gpu: Gpu, nodes: Sequence[kfd.Node]) -> str:
        """Return why the nodes of a GPU do not match its style; empty if they do."""
        topology, compute = self._found.topology, gpu.style.compute
        if not compute:  # whatever else KFD says, it is one device
            return ""
        if not (nodes or gpu.style.is_whole):
            why = topology.refused or next(iter(topology.problems), "KFD has no node for it")
            return f"its partitions ({gpu.style}) are not known: {why}"
        least, most = PARTS.get(compute, 2), PARTS.get(compute, MANY)
        few = len(nodes) < least and topology.is_complete and not gpu.style.is_whole
        small = compute == SMALLEST and any(node.get("num_xcc") > 1 for node in nodes)
        beyond = len(nodes) > most or any(node.partition >= most for node in nodes)
        if few or small or beyond:
            return f"it is {gpu.style}, and its KFD nodes are {len(nodes)} of another style"
        return ""

    def _parts(self, gpu: Gpu, nodes: Sequence[kfd.Node]) -> Iterator[Unit]:
        counts = Counter(node.partition for node in nodes)
        for node in sorted(nodes, key=lambda one: one.partition):
            if counts[node.partition] > 1:
                self._found.skipped[gpu.address] = f"partition {node.partition} is there twice"
            elif node.minor not in self._found.nodes:
                self._found.skipped[gpu.address] = f"no DRM device has renderD{node.minor}"
            else:
                yield unit(self._found, self._dev, gpu, node.minor, node.partition)


def unit(
    found: Snapshot, dev: Path, gpu: Gpu, minor: int | None, number: int | None = None
) -> Unit:
    """Return a GPU, or the partition with a number, by its render node."""
    if minor is None:
        return Unit(gpu, (), None, number, "it has no render node")
    why = found.nodes[minor].absences(dev)
    there = tuple(name for name in why if not why[name])
    return Unit(gpu, there, found.topology.nodes.get(minor), number, why[f"dri/renderD{minor}"])
