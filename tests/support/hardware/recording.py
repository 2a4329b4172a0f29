"""Hardware as ``umockdev-record`` writes it down: devices of machines that are not here.

Of a recording, what device plugins read is made: directories, attributes that are files of their
own, drivers, IOMMU groups and nodes.
"""

from collections.abc import Iterator
from pathlib import Path

from hardware.tree import Hardware

_BUSES = frozenset({"auxiliary", "dsa", "hid", "pci", "platform", "usb", "usb-serial"})
RECORDINGS = Path(__file__).parents[2] / "plugins/generic/recordings"


def play(name: str, hardware: Hardware) -> None:
    """Make the devices of the recording ``name``."""
    text = (RECORDINGS / f"{name}.umockdev").read_text(encoding="utf-8")
    for lines in _devices(text):
        _make(lines, hardware)


def _devices(text: str) -> Iterator[list[tuple[str, str]]]:
    for block in text.strip().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            yield [(kind, value) for kind, _, value in (line.partition(": ") for line in lines)]


def _make(lines: list[tuple[str, str]], hardware: Hardware) -> None:
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
            name: value.replace("\\n", "\n").removesuffix("\n")
            for name, value in attributes.items()
            if "/" not in name and name != "dev"
        },
        properties=properties,
        is_bus=subsystem in _BUSES,
    )
    if "iommu_group" in links:
        members = hardware.sys / "iommu" / Path(links["iommu_group"]).name / "devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / folder.name).symlink_to(folder)
        (folder / "iommu_group").symlink_to(members.parent)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
