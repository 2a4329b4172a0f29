"""Which Intel GPUs the node has: by the PCI bus, and by the device nodes of their drivers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deviceplugin.kit import drm, pci
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.selection import Selection
from deviceplugin.kit.sysfs import AbsentError, Sysfs, SysfsError
from deviceplugin_intelgpu.settings import DRIVERS

VENDOR: Final = 0x8086
_DISPLAY: Final = "03"
_INTEGRATED: Final = "0000:00:02.0"
"""Where a CPU has its own GPU, which uses the memory of the node."""
_TILE: Final = re.compile("tile[0-9]{1,2}")
_SIZE: Final = re.compile("[1-9][0-9]{0,15}")
SURVIVABILITY: Final = "survivability_mode"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a virtual function of one, that a container can be given."""

    address: str
    folder: Path
    driver: str
    product: str
    """Model by its PCI number, 4 hex digits."""
    physical: str
    """Address of the card: of the physical function, where this is a virtual one."""
    numa: int | None
    card: str
    """Such as ``card1``; empty where it has none. A reboot can change it."""
    nodes: tuple[str, ...]
    """Its device nodes below ``/dev``, those that exist, the card first."""
    missing: str
    """Why it cannot be used fully now; empty if it can."""
    links: tuple[str, ...]
    """Names of udev's links to its nodes in ``dri/by-path``."""
    controllers: tuple[str, ...]
    """Device nodes below ``/dev`` of its management engine, for monitoring."""
    can_divide: bool
    """Whether it can have virtual functions."""
    memory: int | None
    """Bytes of its own; None where the driver does not say."""

    @property
    def names(self) -> tuple[str, ...]:
        """What settings can choose it by."""
        return names(self.address, self.product, self.driver)


@dataclass(slots=True)
class Found:
    """What is on the node now."""

    gpus: list[Gpu] = field(default_factory=list)
    functions: list[pci.Function] = field(default_factory=list)
    """All Intel GPUs on the PCI bus, in order, with the cards of virtual functions."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why GPUs are not offered, by address."""
    waiting: list[str] = field(default_factory=list)
    """Addresses of GPUs without a driver."""
    divided: list[pci.Function] = field(default_factory=list)
    """Cards in place of which pods get virtual functions."""

    @property
    def hidden(self) -> dict[str, str]:
        """Why no pod can get a card that has virtual functions, nor these, by its address."""
        offered = {gpu.physical for gpu in self.gpus}
        return {card.address: _hidden(card) for card in self.divided if card.address not in offered}


class Look:
    """Finds GPUs. It remembers the driver of each, for the moment in which it is being unbound."""

    def __init__(self, sysfs: Sysfs, dev: Path, selection: Selection = Selection()) -> None:  # noqa: B008 - frozen
        self._sysfs = sysfs
        self._dev = dev
        self._selection = selection
        self._drivers: dict[str, str] = {}

    def look(self) -> Found:
        """Return what is on the node. Never raises."""
        found = Found()
        for function in pci.functions(Tree(self._sysfs, dev=self._dev)):
            if function.vendor != VENDOR:
                continue
            nodes = drm.nodes(self._sysfs, function.device.path)
            if any(nodes) or function.pci_class.startswith(_DISPLAY):
                found.functions.append(function)
                self._sort(function, nodes, found)
        return found

    def _sort(self, function: pci.Function, nodes: drm.Nodes, found: Found) -> None:
        """Add a function to where it belongs in ``found``."""
        driver = self._driver(function, nodes)
        if not self._selection.has(names(function.address, product(function), driver)):
            return
        if function.is_divided or function.virtual_functions:
            found.divided.append(function)
            return
        absences = nodes.absences(self._dev)
        if why := self._obstacle(function, driver, absences):
            found.skipped[function.address] = why
        elif not any(nodes):
            if not (function.driver or function.physical_function):
                found.waiting.append(function.address)
        else:
            found.gpus.append(self._gpu(function, driver, nodes.card, absences))

    def _driver(self, function: pci.Function, nodes: drm.Nodes) -> str:
        """Return the driver. The kernel removes the link to it before it removes the nodes."""
        if function.driver:
            self._drivers[function.address] = function.driver
        elif any(nodes):
            return self._drivers.get(function.address, DRIVERS[0])
        return function.driver

    def _obstacle(self, function: pci.Function, driver: str, absences: Mapping[str, str]) -> str:
        if not absences:
            if _has_file(self._sysfs, function, SURVIVABILITY):
                return "it is in survivability mode: its firmware has to be repaired"
            return f"{driver} has made no device nodes for it" if driver in DRIVERS else ""
        if driver not in DRIVERS:
            return f"its driver is {driver}, not {' or '.join(DRIVERS)}"
        if all(absences.values()):
            return [*absences.values()][-1]  # the render node's, where it has one
        return ""

    def _gpu(
        self, function: pci.Function, driver: str, card: str, absences: Mapping[str, str]
    ) -> Gpu:
        physical = function.physical_function or function
        return Gpu(
            address=function.address,
            folder=Path(function.device.path),
            driver=driver,
            product=product(function),
            physical=physical.address,
            numa=function.numa_node,
            card=card,
            nodes=tuple(name for name, why in absences.items() if not why),
            missing=next(filter(None, absences.values()), ""),
            links=tuple(link.name for link in function.by_path()),
            can_divide=function.device.attribute("sriov_totalvfs") not in ("", "0"),
            memory=self._memory(function, card),
            controllers=tuple(str(one.relative_to(self._dev)) for one in function.nodes("mei")),
        )

    def _memory(self, function: pci.Function, card: str) -> int | None:
        """Return the sum of what xe says of its tiles, or what Intel's own i915 says."""
        if function.address == _INTEGRATED:
            return 0
        folder = function.device.path
        tiles = self._sysfs.matches(folder, [_TILE])
        paths = [f"{tile}/physical_vram_size_bytes" for tile in tiles]
        texts = map(self._sysfs.text, paths or [f"{folder}/drm/{card}/lmem_total_bytes"])
        sizes = [int(text) if _SIZE.fullmatch(text) else 0 for text in texts]
        return sum(sizes) if all(sizes) else None


def _hidden(card: pci.Function) -> str:
    drivers = sorted({one.driver or "no driver" for one in card.virtual_functions})
    return (
        f"it has {len(card.virtual_functions)} virtual functions, with "
        f"{', '.join(drivers) or 'no driver'}"
    )


def _has_file(sysfs: Sysfs, function: pci.Function, name: str) -> bool:
    """Return whether a function has an attribute, which only root may be able to read."""
    try:
        sysfs.read(f"{function.device.path}/{name}")
    except AbsentError:
        return False
    except SysfsError:
        pass
    return True


def product(function: pci.Function) -> str:
    """Return the model of a function, 4 hex digits."""
    return f"{function.product or 0:04x}"


def names(address: str, model: str, driver: str) -> tuple[str, ...]:
    """Return what settings can choose a GPU by."""
    return address, model, f"0x{model}", driver
