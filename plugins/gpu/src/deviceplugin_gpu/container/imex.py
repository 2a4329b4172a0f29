"""IMEX channels: containers get those whose device node exists."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.health import absence
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.host.roots import Roots

_FOLDER: Final = "nvidia-caps-imex-channels"

Channels = dict[int, dp.DeviceNode]
"""Device nodes by the number of the channel."""


def find(settings: GpuSettings, roots: Roots) -> Channels:
    """Return the channels of the settings that this node has.

    They are searched in ``/dev``, and below the driver's root if that is mounted.

    Raises:
        DiscoveryError: Some are missing, and they are required.
    """
    below = settings.driver_root_ctr_path / "dev"
    places: list[tuple[Path, Path]] = [
        (below, settings.dev_root or settings.driver_root),
        (roots.dev, settings.host_dev_root),
    ]
    found = {}
    for channel in settings.imex_channel_ids:
        name = f"{_FOLDER}/channel{channel}"
        root = next((host for seen, host in places if not absence(seen / name)), None)
        if root is not None:
            found[channel] = dp.DeviceNode(str(root / "dev" / name), f"/dev/{name}")
    if settings.imex_required and len(found) < len(settings.imex_channel_ids):
        raise dp.DiscoveryError(f"imex-required: no {roots.dev}/{_FOLDER}/channel0")
    return found


def warnings(wanted: Collection[int], found: Collection[int]) -> list[str]:
    """Return a warning for each channel that does not exist."""
    return [
        f"IMEX channel {channel} has no device node in /dev/{_FOLDER}: containers do not get it"
        for channel in wanted
        if channel not in found
    ]
