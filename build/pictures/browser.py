"""What a browser without a screen shows of a page, as a picture."""

import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
BARS: Final = 200
"""More height than a window's bars take of it, where a browser without a screen draws nothing."""
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
SOURCE: Final = b"Source\0"
PATIENCE: Final = 60.0
"""Seconds."""


def program(names: Sequence[str], package: str) -> str:
    """Return the first of some programs that is installed."""
    found = next(filter(shutil.which, names), None)
    if found is None:
        raise SystemExit(f"no {names[0]}: apt-get install {package}")
    return found


def draw(page: Path, size: tuple[int, int], target: Path, source: str = "") -> None:
    """Write what a browser shows of a file of HTML in a window of ``size``, with its ``source``."""
    width, height = size
    options = ["--headless", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=2000"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        made = Path(scratch, "picture.png")
        window = [f"--window-size={width},{height + BARS}", f"--user-data-dir={scratch}/profile"]
        words = [program(BROWSERS, "chromium"), *options, *window, f"--screenshot={made}"]
        done = subprocess.run(
            [*words, page.as_uri()], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        if not made.is_file():
            raise SystemExit(f"no picture of {page}: {done.stderr.strip()}")
        target.write_bytes(cut(made.read_bytes(), height, source))


def parts(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks of a PNG: their kind and content."""
    at = len(SIGNATURE)
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        at += length + 12


def cut(picture: bytes, height: int, source: str = "") -> bytes:
    """Return the upper part of a PNG, without the place of the window's bars."""
    found = [*parts(picture)]
    header = next(content for kind, content in found if kind == b"IHDR")
    rows = zlib.decompress(b"".join(content for kind, content in found if kind == b"IDAT"))
    (had,) = struct.unpack(">I", header[4:8])
    kept = rows[: len(rows) // had * height]
    made = {
        b"IHDR": header[:4] + struct.pack(">I", height) + header[8:],
        b"tEXt": SOURCE + source.encode(),
        b"IDAT": zlib.compress(kept, 9),
        b"IEND": b"",
    }
    return SIGNATURE + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in made.items()
    )


def source_of(picture: bytes) -> str:
    """Return what a picture says of its source; empty if nothing."""
    texts = [content for kind, content in parts(picture) if kind == b"tEXt"]
    return next((one.removeprefix(SOURCE).decode() for one in texts if one[:7] == SOURCE), "")
