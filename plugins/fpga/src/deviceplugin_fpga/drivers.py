"""FPGAs as the two kernel drivers show them, in one form.

This module runs in the hook on the host, so it needs only Python 3.9 and its standard library, as
does ``kit.sysfs``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deviceplugin.kit.sysfs import AbsentError, OddError, Sysfs, SysfsError, natural, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = re.compile(r"[0-9a-f]{32}")
"""An interface or AFU id."""
ALL_ONES = "f" * 32
"""The id that hardware returns when it does not answer."""
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}")
_ACCELERATOR = "0x120000"


class NoDriverError(Exception):
    """Neither driver is loaded."""


@dataclass(frozen=True)
class Driver:
    """The differences between the drivers. Patterns match file names."""

    name: str
    folder: str
    """The directory of regions, below ``/sys/class`` and below the PCI device."""
    region: re.Pattern[str]
    port: re.Pattern[str]
    fme: re.Pattern[str]
    interface: tuple[re.Pattern[str], ...]
    """Where an FME has its interface id."""


OPAE = Driver(
    "OPAE",
    "fpga",
    region=re.compile(r"intel-fpga-dev\.[0-9]+"),
    port=re.compile(r"intel-fpga-port\.[0-9]+"),
    fme=re.compile(r"intel-fpga-fme\.[0-9]+"),
    interface=(re.compile("pr"), re.compile("interface_id")),
)
DFL = Driver(
    "DFL",
    "fpga_region",
    region=re.compile(r"region[0-9]+"),
    port=re.compile(r"dfl-port\.[0-9]+"),
    fme=re.compile(r"dfl-fme\.[0-9]+"),
    interface=(
        re.compile(r"dfl-fme-region\.[0-9]+"),
        re.compile("fpga_region"),
        re.compile(r"region[0-9]+"),
        re.compile("compat_id"),
    ),
)
DRIVERS = (OPAE, DFL)
"""The first whose class exists is used."""


@dataclass(frozen=True)
class Port:
    """A port: the part of an FPGA that a container can have."""

    folder: Path
    """Its directory in sysfs, without links."""
    card: Path
    """The PCI device in sysfs. For a port of a virtual function, it is that function."""
    sysfs: Sysfs = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """Such as ``dfl-port.0``; its node in ``/dev`` has the same."""
        return self.folder.name

    def afu_id(self) -> str:
        """Return the id of the programmed function; SysfsError as during programming, or if odd."""
        return _id(self.sysfs, self.folder, "afu_id")

    def number(self) -> int:
        """Return its number on the FME, which programming needs; SysfsError if there is none."""
        text = self.sysfs.read(self.folder / "id", "")
        if not _NUMBER.fullmatch(text):
            raise OddError(f"{self.name}: id", f"{text[:40]!r} is not a number")
        return int(text)


@dataclass(frozen=True)
class Fme:
    """The management engine of an FPGA, with its ports in natural order."""

    folder: Path
    interface_id: str
    """The interface that its bitstreams must have."""
    ports: tuple[Port, ...] = ()

    @property
    def name(self) -> str:
        """Such as ``dfl-fme.0``; its node in ``/dev`` has the same."""
        return self.folder.name

    @property
    def card(self) -> Path:
        """The PCI device in sysfs; the physical function, if its ports are of virtual ones."""
        return next(one for one in self.folder.parents if _PCI_ADDRESS.fullmatch(one.name))


@dataclass
class Found:
    """The result of a discovery."""

    fmes: list[Fme] = field(default_factory=list)
    problems: dict[str, set[str]] = field(default_factory=dict)
    """Why ports and FMEs were skipped, with their names."""

    def skip(self, error: SysfsError, *names: str) -> None:
        """Record that ``names`` are skipped because of ``error``."""
        self.problems.setdefault(str(error), set()).update(names)


def choose(sysfs: Sysfs) -> Driver:
    """Return the driver whose class is in sysfs, or raise NoDriverError."""
    folders = {sysfs.root / "class" / driver.folder: driver for driver in DRIVERS}
    for folder, driver in folders.items():
        if os.path.isdir(folder):  # noqa: PTH112 - never raises
            return driver
    raise NoDriverError(
        f"kernel driver is not loaded: neither {' nor '.join(map(str, folders))} exists"
    )


def look(sysfs: Sysfs) -> Found:
    """Return all FMEs that have ports. Faulty ones are skipped, and do not affect the others."""
    driver, found = choose(sysfs), Found()
    ports: dict[Path, dict[Path, Port]] = {}
    for entry in _port_entries(driver, sysfs, found):
        try:
            port = port_at(driver, sysfs.follow(entry), sysfs)
            ports.setdefault(fme_of(driver, port), {})[port.folder] = port
        except SysfsError as error:
            found.skip(error, entry.name)
    for folder in sorted(ports, key=lambda path: natural(path.name)):
        own = sorted(ports[folder].values(), key=lambda port: natural(port.name))
        try:
            found.fmes.append(Fme(folder, interface_id(driver, folder, sysfs), tuple(own)))
        except SysfsError as error:
            found.skip(error, folder.name, *(port.name for port in own))
    return found


def port_at(driver: Driver, folder: Path, sysfs: Sysfs) -> Port:
    """Return the port at ``folder``, free of links; SysfsError if it is none of the driver's."""
    if not driver.port.fullmatch(folder.name):
        raise OddError(folder.name, f"not a port of the {driver.name} driver")
    card = next((one for one in folder.parents if _PCI_ADDRESS.fullmatch(one.name)), None)
    if card is None:
        raise OddError(folder.name, "not on a PCI device")
    for name in ("vendor", "device"):
        if not sysfs.read(card / name, ""):
            raise AbsentError(card.name, f"no {name}")
    kind = sysfs.read(card / "class", "")
    if kind != _ACCELERATOR:
        raise OddError(card.name, f"PCI class {kind[:40]!r} is not {_ACCELERATOR}")
    return Port(folder, card, sysfs)


def fme_of(driver: Driver, port: Port) -> Path:
    """Return the folder of the FME of a port; SysfsError unless there is exactly one.

    It is the FME in the same region. A virtual function has none: it uses its physical function's.
    """
    sysfs = port.sysfs
    fmes = list(sysfs.matches(port.folder.parent, [driver.fme]))
    if not fmes:
        function = port.card / "physfn"
        card = sysfs.follow(function) if os.path.lexists(function) else port.card
        regions = re.compile(re.escape(driver.folder))
        fmes = list(sysfs.matches(card, [regions, driver.region, driver.fme]))
    if len(fmes) != 1:
        names = ", ".join(fme.name for fme in fmes) or "none"
        raise OddError(port.card.name, f"one FME is needed for {port.name}, found: {names}")
    return fmes[0]


def interface_id(driver: Driver, fme: Path, sysfs: Sysfs) -> str:
    """Return the one interface id of an FME, or raise SysfsError. DFL has it for each port."""
    paths = sysfs.matches(fme, driver.interface)
    ids = {_id(sysfs, fme, str(path.relative_to(fme))) for path in paths}
    if len(ids) == 1:
        return ids.pop()
    given = f"several interface ids: {', '.join(sorted(ids))}" if ids else "no interface id"
    raise OddError(fme.name, given)


def _port_entries(driver: Driver, sysfs: Sysfs, found: Found) -> Iterator[Path]:
    """Yield the entries of ports in all regions. A port can appear twice."""
    try:
        regions = sysfs.entries(Path("class", driver.folder), driver.region)
    except SysfsError as error:  # gone since it was chosen
        found.skip(error)
        return
    for region in regions:
        try:
            yield from sysfs.entries(sysfs.follow(region), driver.port)
        except SysfsError as error:
            found.skip(error)


def _id(sysfs: Sysfs, folder: Path, name: str) -> str:
    text = sysfs.read(folder / name, "").lower()
    if not ID.fullmatch(text):
        raise OddError(f"{folder.name}: {name}", f"{shown(text)} is not an id of 32 hex digits")
    return text
