"""The devices that each mode advertises of FPGAs, with their ids and CDI specifications."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import numa, pci
from deviceplugin.kit.cdi import Directory, Edits, Hook, Specification
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.health import SteadyHealth
from deviceplugin.kit.sysfs import OddError, Sysfs, SysfsError
from deviceplugin_fpga import health
from deviceplugin_fpga.drivers import ALL_ONES, Fme, Found, Port
from deviceplugin_fpga.health import Fault, Key, Severity
from deviceplugin_fpga.resource_names import Aliases
from deviceplugin_fpga.settings import Mode

_VENDOR: Final = "intel.cdi.k8s.io"
KIND: Final = f"{_VENDOR}/fpga"
"""CDI's kind of the devices."""
_INTEL: Final = 0x8086
_ACCELERATOR: Final = "120000"
_MODELS: Final = frozenset({0x09C4, 0x0B2B, 0x0B30, 0xBCBD, 0xBCC0, 0xBCCE})
"""PCI devices of the two drivers. Other accelerators of the same class are not FPGAs."""


def by_address(found: Found) -> Mapping[str, str]:
    """Return ids such as ``0000:3b:00.0-port1`` by the kernel's names, such as ``dfl-port.4``.

    What has no id of its own is missing, and ``found`` gets the reason.
    """
    ids: dict[str, str] = {}
    owners: dict[str, list[str]] = {}
    for name, id_ in _ids(found):
        ids[name] = id_
        owners.setdefault(id_, []).append(name)
    for id_, names in owners.items():
        if len(names) > 1:  # none of them may be taken for another
            problem = OddError(id_, f"not the id of one device: {', '.join(names)}")
            found.skip(problem, *names)
            for name in names:
                del ids[name]
    return ids


def _ids(found: Found) -> Iterator[tuple[str, str]]:
    for fme in found.fmes:
        yield fme.name, f"{fme.card.name}-fme"
        for port in fme.ports:
            try:
                yield port.name, f"{port.card.name}-port{port.number()}"
            except SysfsError as error:
                found.skip(error, port.name)


@dataclass
class DeviceMaker:
    """Makes devices of the result of a discovery, and adds problems of single devices."""

    found: Found
    dev: Path
    steady: SteadyHealth[Key]
    ignored: Collection[str]
    """Error attributes that are ignored."""
    aliases: Aliases = field(default_factory=Aliases)
    ids: Mapping[str, str] | None = None
    """Ids by the kernel's names; None if these are the ids."""
    faults: set[Fault] = field(default_factory=set)
    """All errors that the hardware reports."""

    def devices(self, mode: Mode) -> Iterator[dp.Device]:
        """Yield the devices of ``mode``."""
        for fme in self.found.fmes:
            if mode == "af":
                yield from self._ports(fme)
            elif self._has_id(fme.name):
                yield self._region(fme, with_engine=mode == "regiondevel")

    def _ports(self, fme: Fme) -> Iterator[dp.Device]:
        for port in fme.ports:
            if not self._has_id(port.name):
                continue
            try:
                afu_id = port.afu_id()
            except SysfsError as error:
                self.found.skip(error, port.name)
                continue
            resource = self.aliases.af(fme.interface_id, afu_id)
            facts = {"interface": fme.interface_id, "afu": afu_id}
            sick = _all_ones(f"{port.name}: afu_id", afu_id)
            yield self._device(port.name, resource, fme, [port], [port.name], facts, sick)

    def _has_id(self, name: str) -> bool:
        return self.ids is None or name in self.ids

    def _region(self, fme: Fme, *, with_engine: bool) -> dp.Device:
        nodes = [*(port.name for port in fme.ports), *([fme.name] if with_engine else [])]
        facts = {port.name: afu_id for port in fme.ports if (afu_id := _programmed(port))}
        resource = self.aliases.region(fme.interface_id)
        sick = _all_ones(f"{fme.name}: interface id", fme.interface_id)
        return self._device(fme.name, resource, fme, fme.ports, nodes, facts, sick)

    def _device(
        self,
        name: str,
        resource: str,
        fme: Fme,
        ports: Sequence[Port],
        nodes: Sequence[str],
        facts: dict[str, str],
        sick: Sequence[Fault],
    ) -> dp.Device:
        id_ = name if self.ids is None else self.ids[name]
        found = [*sick, *health.faults(fme, ports, self.ignored)]
        self.faults.update(found)
        return dp.Device(
            id_,
            resource=resource,
            health=health.judged(self.steady, (resource, id_), found),
            topology=numa.topology(numa.node(ports[0].card, sysfs=ports[0].sysfs.root)),
            nodes=[dp.DeviceNode(str(self.dev / node), f"/dev/{node}") for node in nodes],
            attributes={"pci": ports[0].card.name, **facts},
        )


def _all_ones(what: str, text: str) -> list[Fault]:
    if text != ALL_ONES:
        return []
    return [Fault("", Severity.FATAL, f"{what} is all ones: the hardware does not answer")]


def _programmed(port: Port) -> str:
    """Return the programmed function for people to read; empty if the kernel does not say."""
    try:
        return port.afu_id()
    except SysfsError:
        return ""


def cdi_directory(path: Path) -> Directory:
    """Return the directory at ``path``, with our specifications."""
    return Directory(path, _VENDOR)


def write_specification(folder: Directory, device: str, hook: Path) -> None:
    """Write the specification of ``device`` to ``folder``, unless it has the same content."""
    edits = Edits(hooks=[Hook("createRuntime", str(hook))])
    file = f"{KIND.replace('/', '-')}-{device}.yaml"
    folder.write(Specification(KIND, {device: edits}), file)


def waiting_cards(sysfs: Sysfs) -> list[str]:
    """Return the PCI addresses of FPGAs without a driver."""
    return [
        card.address
        for card in pci.functions(Tree(sysfs))
        if (card.vendor, card.pci_class) == (_INTEL, _ACCELERATOR)
        and card.product in _MODELS
        and not card.driver
    ]
