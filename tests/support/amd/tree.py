"""Builds /sys and /dev of a node with AMD GPUs, of what is known of a machine.

::

    bus/pci/devices/0000:05:00.0 -> devices/pci0000:00/0000:05:00.0
      vendor device class numa_node product_name current_compute_partition ras/umc_err_count
      drm/card1 drm/renderD128                    the GPU, or its first partition
    devices/platform/amdgpu_xcp_0/drm/{card2,renderD129}        other partitions
    class/kfd/kfd/topology/nodes/2/{properties,gpu_id,io_links,p2p_links,mem_banks}
    class/kfd/kfd/proc/4711/vram_<gpu_id>
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from amd.machines import Card, Machine, Node, write_links, write_properties
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import AmdPlugin, AmdSettings, kfd
from deviceplugin_amd.handover import Handover
from deviceplugin_testing.fixture import FailingKernel
from hardware.tree import Hardware, renew, target_of

BLOCKS: Final = ("umc", "sdma", "gfx", "mmhub", "pcie_bif")
_PARTS: Final = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
_MEMORY: Final = {
    "SPX": ("NPS1",),
    "DPX": ("NPS1", "NPS2"),
    "QPX": ("NPS1", "NPS4"),
    "CPX": ("NPS1", "NPS4"),
}
"""With which memory modes the driver divides MI300X, by ``aqua_vanjaram.c``."""


class AmdTree:
    """A node's GPUs below ``root``. Device nodes are links to /dev/null.

    Kernels call the devices of partitions ``xcp``, and some (``high``) have their numbers in the
    highest bits of location_id. Links of nodes are most of the files of a tree.
    """

    def __init__(
        self,
        root: Path,
        machine: Machine,
        *,
        xcp: str = "amdgpu_xcp_{}",
        high: bool = False,
        links: bool = True,
    ) -> None:
        self.root = root
        self.hardware = Hardware(root)
        self.sys, self.dev = self.hardware.sys, self.hardware.dev
        self.machine = machine
        self.kernel = FailingKernel()
        self.sysfs = Sysfs(self.sys, self.kernel)
        self.cards: dict[str, Card] = {}
        self._xcp, self._high, self._links = xcp, high, links
        self._generation = 1
        self.writes: list[str] = []
        """What was written to divide GPUs, such as ``0000:05:00.0 CPX``."""
        self.errors: list[int] = []
        """Numbers of errors for the next of them."""
        self.hardware.device("virtual/kfd/kfd", "kfd", node="kfd")
        self.kfd = self.sys / "class/kfd/kfd"
        (self.kfd / "proc").mkdir()
        drivers = self.sys / "module/amdgpu/drivers"
        drivers.mkdir(parents=True)
        (drivers / "pci:amdgpu").symlink_to("../../../bus/pci/drivers/amdgpu")
        (self.sys / "module/amdgpu/version").write_text("6.8.5\n")
        (self.sys / "module/amdgpu/srcversion").write_text("A6B0C2F29B2B9F9E6A64E19\n")
        self.hardware.pci("0000:02:00.0", "1a03:2000", "030000", driver="ast")
        self.hardware.device("pci0000:00/0000:02:00.0/drm/card0", "drm", node="dri/card0")
        self._minor, self._partition = 128, 0
        for address in machine.addresses:
            self.plug_in(address)
        self.topology()

    def plugin(self, handover: Handover | None = None, **settings: Any) -> AmdPlugin:
        """Return a plugin that waits for nothing."""
        given = {"state_file": self.root / "health.json", "error_patience": timedelta(), **settings}
        made = AmdSettings(sysfs_dir=self.sys, dev_dir=self.dev, **given)
        return AmdPlugin(made, self.sysfs, handover, lambda _seconds: None, self.put)

    # What the machine has.

    def plug_in(self, address: str) -> Card:
        """Have a GPU on the bus, by the driver; KFD knows of it after ``topology``."""
        machine, place = self.machine, self.machine.addresses.index(address)
        compute, memory = machine.style
        values = {
            "vendor": "0x1002",
            "device": f"{machine.product:#06x}",
            "class": "0x120000" if compute else "0x038000",
            "numa_node": str(machine.cpu(place)) if machine.cpus > 1 else "-1",
            "product_name": machine.name,
            "mem_info_vram_total": str(machine.memory * machine.parts),
        }
        if compute:
            values |= {
                "current_compute_partition": compute,
                "available_compute_partition": "SPX, DPX, QPX, CPX",
                "current_memory_partition": memory,
                "available_memory_partition": "NPS1, NPS4",
            }
        path = f"pci{address[:4]}:00/{address}"
        folder = self.hardware.device(path, "pci", driver="amdgpu", attributes=values, is_bus=True)
        bound = self.sys / "bus/pci/drivers/amdgpu"
        bound.mkdir(parents=True, exist_ok=True)
        (bound / address).unlink(missing_ok=True)
        (bound / address).symlink_to(folder)
        (folder / "ras").mkdir()
        card = Card(place, address, folder, machine.parts, [self._drm(path)])
        for _ in range(1, machine.slots):
            if self._minor == 128 + machine.minors:
                break
            name = self._xcp.format(self._partition)
            self._partition += 1
            self.hardware.device(f"platform/{name}", "platform", is_bus=True)
            card.minors.append(self._drm(f"platform/{name}"))
        for block in BLOCKS:
            self.count(address, block, 0, 0, card)
        self.cards[address] = card
        return card

    def _drm(self, path: str) -> int:
        minor, self._minor = self._minor, self._minor + 1
        for name in (f"card{minor - 127}", f"renderD{minor}"):
            self.hardware.device(f"{path}/drm/{name}", "drm", node=f"dri/{name}")
        return minor

    def nodes(self) -> Iterator[Node]:
        """Yield KFD's nodes of GPUs."""
        number = self.machine.cpus
        for card in self.cards.values():
            for part in range(min(card.parts, len(card.minors))):
                yield Node(number, card, part)
                number += 1

    def node(self, address: str, part: int = 0) -> Node:
        """Return the node of a GPU or a partition."""
        return next(one for one in self.nodes() if (one.card.address, one.part) == (address, part))

    def folder(self, node: Node) -> Path:
        """Return the directory of a node of KFD."""
        return self.kfd / f"topology/nodes/{node.number}"

    # What happens to it.

    def topology(self) -> None:
        """Have KFD see what is there now: all nodes go, and come again."""
        place, draft, old = (self.kfd / name for name in ("topology", "draft", "old"))
        for number in range(self.machine.cpus):
            write_properties(draft / str(number), {"cpu_cores_count": 96, "simd_count": 0})
        nodes = list(self.nodes())
        for node in nodes:
            self._write(draft / str(node.number), node, nodes)
        place.mkdir(exist_ok=True)
        (place / "generation_id").write_text(f"{self._generation}\n")
        self._generation += 1
        if (place / "nodes").exists():
            (place / "nodes").rename(old)
        draft.rename(place / "nodes")
        shutil.rmtree(old, ignore_errors=True)

    def divide(self, address: str, compute: str, memory: str = "NPS1") -> None:
        """Divide a GPU anew: it leaves KFD, and comes back as others."""
        card = self.cards[address]
        card.parts = 0
        self.topology()
        (card.folder / "current_compute_partition").write_text(f"{compute}\n")
        (card.folder / "current_memory_partition").write_text(f"{memory}\n")
        card.parts = min(_PARTS[compute], self.machine.slots)
        self.topology()

    def put(self, path: Path, text: str) -> None:
        """Take what is written to a GPU's ``current_compute_partition``, as the driver does."""
        address, mode = path.parent.name, text.strip()
        self.writes.append(f"{address} {mode}")
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        memory = (path.parent / "current_memory_partition").read_text().strip()
        if memory not in _MEMORY[mode]:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        own = [node for node in self.nodes() if node.card.address == address]
        if any(kfd.users(self.sysfs, node.gpu_id) for node in own):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        self.divide(address, mode, memory)

    def vanish(self, address: str) -> None:
        """Take a GPU away."""
        card = self.cards.pop(address)
        for link in [*(self.sys / "class/drm").iterdir()]:
            minor = link.name.removeprefix("renderD")
            if minor.isdigit() and int(minor) in card.minors:
                owner = target_of(link).parents[1]
                self.hardware.unplug(str(owner.relative_to(self.sys / "devices")))
        (self.sys / "bus/pci/drivers/amdgpu" / address).unlink(missing_ok=True)
        self.topology()

    def count(
        self, address: str, block: str, ue: int, ce: int = 0, card: Card | None = None
    ) -> None:
        """Have a block of a GPU say how many errors it had."""
        card = card or self.cards[address]
        path = card.folder / "ras" / f"{block}_err_count"
        path.write_text(f"ue: {ue}\nce: {ce}\n")

    def bind_anew(self, address: str) -> None:
        """Have the driver leave a GPU and take it again: its DRM devices are new ones."""
        renew(self.cards[address].folder / "drm")

    def refuse(self) -> None:
        """Have KFD refuse what it refuses to a container that is not privileged."""
        for node in self.nodes():
            for name in ("properties", "gpu_id", "name", "io_links", "p2p_links", "mem_banks"):
                self.kernel.faults[self.folder(node) / name] = errno.EPERM

    def use(self, node: Node, process: int, held: int, *, queue: bool = False) -> None:
        """Have a process hold memory of a GPU, or a queue."""
        folder = self.kfd / f"proc/{process}"
        folder.mkdir(exist_ok=True)
        for one in self.nodes():
            path = folder / f"vram_{one.gpu_id}"
            if one == node or not path.exists():
                path.write_text(f"{held if one == node else 0}\n")
        if queue:
            (folder / "queues/1").mkdir(parents=True)
            (folder / "queues/1/gpuid").write_text(f"{node.gpu_id}\n")

    def end(self, process: int) -> None:
        """Have a process end, and its memory be free."""
        shutil.rmtree(self.kfd / f"proc/{process}")

    # KFD's files.

    def _write(self, folder: Path, node: Node, nodes: list[Node]) -> None:
        machine, address = self.machine, node.card.address
        domain, bus, device = (int(part, 16) for part in address.partition(".")[0].split(":"))
        location = bus << 8 | device << 3
        if node.card.parts > 1:
            location |= node.part << 28 if self._high else node.part
        newer = {
            "domain": domain,
            "hive_id": machine.hive(node.card.place) * 0x7FD1B9C5D9A07E5,
            "unique_id": 0x5EEDC0FFEE000000 + node.card.place,
            "gfx_target_version": machine.gfx,
            "num_xcc": max(machine.dies // node.card.parts, 1),
        }
        write_properties(
            folder,
            {
                "cpu_cores_count": 0,
                "simd_count": machine.simds * machine.parts // node.card.parts,
                "simd_per_cu": 4,
                "vendor_id": 4098,
                "device_id": machine.product,
                "location_id": location,
                "drm_render_minor": node.minor,
                **(newer if machine.gfx else {}),
            },
        )
        (folder / "gpu_id").write_text(f"{node.gpu_id}\n")
        memory = machine.memory * machine.parts // node.card.parts
        write_properties(folder / "mem_banks/0", {"heap_type": 1, "size_in_bytes": memory})
        if self._links:
            write_links(folder, node, nodes, self.machine)


Build = Callable[..., AmdTree]
"""Makes the tree of a machine."""
