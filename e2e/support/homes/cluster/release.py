"""A release as it is published: files at an address, or in a folder."""

import hashlib
import re
from pathlib import Path
from urllib.request import urlopen

SUMS = "SHA256SUMS"


class Release:
    """The files of one release, which are as its checksums say.

    Raises:
        OSError: There are none.
    """

    def __init__(self, address: str) -> None:
        folder = Path(address)
        self._address = folder.resolve().as_uri() if folder.is_dir() else address.rstrip("/")
        lines = _read(f"{self._address}/{SUMS}").decode().splitlines()
        self.sums = {name: total for total, _, name in (line.partition("  ") for line in lines)}
        charts = [name for name in self.sums if re.fullmatch(r"device-plugins-\d.*\.tgz", name)]
        assert charts, f"{address} has no chart"
        self.chart = charts[0]
        self.version = self.chart.removeprefix("device-plugins-").removesuffix(".tgz")

    def address(self, name: str) -> str:
        """Return the address of a file, as kubectl and helm take it."""
        return f"{self._address}/{name}".removeprefix("file://")

    def read(self, name: str) -> bytes:
        """Return a file. Raise ``AssertionError`` if it is not the one of the checksums."""
        found = _read(f"{self._address}/{name}")
        assert self.sums[name] == hashlib.sha256(found).hexdigest(), f"{name} is another file"
        return found


def _read(address: str) -> bytes:
    with urlopen(address, timeout=30) as answer:
        found: bytes = answer.read()
    return found
