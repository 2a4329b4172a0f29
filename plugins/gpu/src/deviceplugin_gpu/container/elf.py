"""Reading the machine of a shared library, its SONAME, and which libraries it needs."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_MAGIC: Final = b"\x7fELF\x02\x01"
"""64 bits, little-endian: all machines that NVIDIA has drivers for."""
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_ENTRY: Final = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _SONAME = 1, 5, 14
_SHARED: Final = 3
_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
_MAX_NAME: Final = 256
_MAX_DYNAMIC: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """A library for 64-bit programs."""

    machine: str
    """The machine in the spelling of ``uname -m``; empty if unknown."""
    soname: str
    """The name that programs ask for; empty if it has none."""
    needed: tuple[str, ...] = ()
    """The names of the libraries without which it cannot be loaded."""


def read(path: Path) -> SharedLibrary | None:
    """Return the facts about the library at ``path``; None if it is not a 64-bit library.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if not head.startswith(_MAGIC) or len(head) < _HEADER.size:
            return None
        _, kind, machine, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack(head)
        if kind != _SHARED or size != _SEGMENT.size:
            return None
        try:
            segments = [*_SEGMENT.iter_unpack(_at(file, table, size * count))]
            names = _names(file, segments)
            needed = tuple(name for tag, name in names if tag == _NEEDED)
            soname = next((name for tag, name in names if tag == _SONAME), "")
            return SharedLibrary(_MACHINES.get(machine, ""), soname, needed)
        except (struct.error, ValueError):  # truncated, or not a valid ELF file
            return None


def _names(file: BinaryIO, segments: list[tuple[int, ...]]) -> list[tuple[int, str]]:
    """Return the names in the dynamic section, each with its tag."""
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == _DYNAMIC:
            entries = [*_ENTRY.iter_unpack(_at(file, offset, min(length, _MAX_DYNAMIC)))]
            strings = [_offset(segments, value) for tag, value in entries if tag == _STRINGS]
            named = [one for one in entries if one[0] in {_NEEDED, _SONAME}]
            return [(tag, _text(file, start + at)) for start in strings[:1] for tag, at in named]
    return []


def _text(file: BinaryIO, place: int) -> str:
    return _at(file, place, _MAX_NAME).partition(b"\0")[0].decode(errors="replace")


def _offset(segments: list[tuple[int, ...]], address: int) -> int:
    """Return the offset in the file of what is loaded at ``address``."""
    for kind, _, offset, start, _, length, _, _ in segments:
        if kind == _LOAD and start <= address < start + length:
            return offset + address - start
    return address


def _at(file: BinaryIO, offset: int, length: int) -> bytes:
    if not 0 <= offset <= os.fstat(file.fileno()).st_size:
        raise ValueError(f"nothing is at {offset}")
    file.seek(offset)
    return file.read(length)
