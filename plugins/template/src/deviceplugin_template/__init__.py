"""Advertise USB serial adapters as example.com/serial."""

from collections.abc import Iterable
from pathlib import Path

import deviceplugin as dp


class SerialPlugin(dp.Plugin):
    resource = "example.com/serial"

    def __init__(self, root: Path = Path("/dev")) -> None:
        self.root, self.watch_paths = root, [root]

    def discover(self) -> Iterable[dp.Device]:
        for path in self.root.glob("ttyUSB*"):
            yield dp.Device.from_path(path)


if __name__ == "__main__":
    dp.main(SerialPlugin)
