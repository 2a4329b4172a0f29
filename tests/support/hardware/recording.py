"""Hardware as ``umockdev-record`` and ``deviceplugin record`` write it down: of other machines.

Of a recording, what device plugins read is made: directories, attributes, drivers, IOMMU groups,
nodes and udev's links.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from hardware.tree import Hardware

_BUSES = frozenset({"auxiliary", "dsa", "hid", "pci", "platform", "usb", "usb-serial"})
_FUNCTION = re.compile("physfn|virtfn[0-9]+")
RECORDINGS = Path(__file__).parents[2] / "plugins/generic/recordings"


def play(name: str, hardware: Hardware) -> None:
    """Make the devices of the recording ``name``."""
    load((RECORDINGS / f"{name}.umockdev").read_text(encoding="utf-8"), hardware)


def load(text: str, hardware: Hardware) -> None:
    """Make the devices of a recording."""
    made = [(_make(lines, hardware), lines) for lines in _devices(text)]
    for folder, lines in made:
        for name, target in (_pair(value) for kind, value in lines if kind == "L"):
            if _FUNCTION.fullmatch(name):
                (folder / name).symlink_to(hardware.sys / "bus/pci/devices" / Path(target).name)
        _link_nodes(lines, hardware)


def _devices(text: str) -> Iterator[list[tuple[str, str]]]:
    for block in text.strip().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            yield [(kind, value) for kind, _, value in (line.partition(": ") for line in lines)]


def _make(lines: list[tuple[str, str]], hardware: Hardware) -> Path:
    pairs = {kind: dict(_pair(value) for one, value in lines if one == kind) for kind in "EAL"}
    properties, attributes, links = pairs["E"], pairs["A"], pairs["L"]
    path = next(value for kind, value in lines if kind == "P").removeprefix("/devices/")
    subsystem = properties["SUBSYSTEM"]
    folder = hardware.device(
        path,
        subsystem,
        node=next((value.partition("=")[0] for kind, value in lines if kind == "N"), ""),
        driver=Path(links.get("driver", "")).name,
        attributes={
            name: _plain(value)
            for name, value in attributes.items()
            if "/" not in name and name != "dev"
        },
        properties=properties,
        links=tuple(value for kind, value in lines if kind == "S"),
        is_bus=subsystem in _BUSES,
    )
    for name, value in attributes.items():
        if "/" in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{_plain(value)}\n")
    if "iommu_group" in links:
        members = hardware.sys / "iommu" / Path(links["iommu_group"]).name / "devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / folder.name).symlink_to(folder)
        (folder / "iommu_group").symlink_to(members.parent)
    return folder


def _link_nodes(lines: list[tuple[str, str]], hardware: Hardware) -> None:
    """Make udev's links to a device node."""
    node = next((value.partition("=")[0] for kind, value in lines if kind == "N"), "")
    for link in (hardware.dev / value for kind, value in lines if kind == "S"):
        link.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(link):  # udev gives it to one of several
            link.symlink_to(os.path.relpath(hardware.dev / node, link.parent))


def _plain(text: str) -> str:
    letters = re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), text)
    return letters.removesuffix("\n")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
