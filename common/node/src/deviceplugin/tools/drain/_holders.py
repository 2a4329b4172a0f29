"""Who holds devices of this node through DRA, and who does through device plugins."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from deviceplugin._attribution.podresources import PodResources
from deviceplugin._dra.claims.record import Record
from deviceplugin.errors import KubeletUnavailableError

_CLAIMS: Final = "claims"
_OFFERED: Final = "offered"
"""The file that a process keeps while this node may have slices of its driver."""


def through_dra(driver_dir: Path, drivers: Collection[str]) -> list[str]:
    """Return a message for each claim that is prepared, and for each driver that still offers.

    Args:
        driver_dir: The directory of all drivers.
        drivers: The names of the drivers; none for all that there are.

    Raises:
        OSError: A directory cannot be read.
    """
    try:
        found = sorted(driver_dir.iterdir())
    except FileNotFoundError:
        return []
    wanted = [path for path in found if path.is_dir() and (not drivers or path.name in drivers)]
    return [f"{path.name}: {text}" for path in wanted for text in _of_driver(path)]


def _of_driver(directory: Path) -> Iterator[str]:
    if (directory / _OFFERED).exists():
        yield "devices are still offered: set protocol to device-plugin, and leave it running"
    claims = directory / _CLAIMS
    for path in sorted(claims.iterdir()) if claims.is_dir() else ():
        if path.name.startswith(".") or not path.name.endswith((".json", ".json.bad")):
            continue
        try:
            record = Record.read(json.loads(path.read_bytes()))
        except FileNotFoundError:  # released meanwhile
            continue
        except (ValueError, RecursionError):
            yield f"{path} is not a readable record: deviceplugin doctor says what to do"
        else:
            yield f"{record.claim} has {', '.join(one.id for one in record.devices)}"


def through_plugin(service: PodResources, resources: Collection[str]) -> list[str]:
    """Return a message for each pod that holds devices of ``resources`` through a device plugin."""
    try:
        found = service.list()
    except KubeletUnavailableError as error:
        return [f"what pods hold is unknown: {error}"]
    if found.holds is None or not found.complete:
        return ["what pods hold is unknown: the kubelet lists no pods"]
    held: dict[tuple[str, str], set[str]] = {}
    for hold in found.holds:
        if hold.resource in resources:
            held.setdefault((hold.resource, "/".join(hold.owner)), set()).add(hold.device)
    return [
        f"{resource}: pod {pod} has {', '.join(sorted(devices))}"
        for (resource, pod), devices in sorted(held.items())
    ]
