"""The plugin of the whole node, and the command that its process runs."""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import sharing

RESOURCE: Final = "example.com/thing"
FOLDER: Final = "THINGS"
"""The environment variable that names the folder."""
SHARES: Final = "THINGS_SHARES"
"""The environment variable that says how many shares each device has."""


class Things(dp.Plugin):
    """A device for each file of a folder; what is in the file is why it is not healthy.

    Each has so many shares as the environment says, with a node of its own for each share.
    """

    resource = RESOURCE

    @override
    def discover(self) -> Iterable[dp.Device]:
        for path in sorted(Path(os.environ[FOLDER]).iterdir()):
            reason = path.read_text()
            health = dp.Health.unhealthy(reason) if reason else dp.Health()
            device = dp.Device(path.name, health=health)
            for share in sharing.shares(device, int(os.environ.get(SHARES, "1"))):
                yield replace(share, nodes=[dp.DeviceNode(f"/dev/{share.id}")])


class ThingsCommand:
    """What the process of the plugin runs."""

    def main(self) -> None:
        """Run the plugin until a signal."""
        dp.main(Things, argv=sys.argv[2:])
