"""Bitstreams: finding them, and reading their headers. Every offset is checked before use."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deviceplugin_fpga.drivers import ID
from deviceplugin_fpga.hook import files
from deviceplugin_fpga.hook.files import HookError, shown

if TYPE_CHECKING:
    from pathlib import Path


_MAGIC = b"\x7fELF"
_LITTLE_ENDIAN = 1
# In the header: offset of the section table, size and number of its entries, index of the names.
# In a section: name, type, offset, size.
_LAYOUTS = {
    1: (struct.Struct("<32xI10xHHH"), struct.Struct("<II8xII")),
    2: (struct.Struct("<40xQ10xHHH"), struct.Struct("<II16xQQ")),
}
_WITHOUT_CONTENT = 8

OPENCL = ".aocx"
SUFFIXES = (".gbs", OPENCL)
"""Suffixes of bitstreams, in the order in which they are tried."""
_LARGEST = 512 * 1024**2
"""The most bytes of a bitstream, packed or not: several times those of the largest FPGA."""
_HEADER = struct.Struct("<QQI")
_GUID = (0x414750466E6F6558, 0x31303076534247B7)
_METADATA = range(1, 4096)
"""Possible lengths of the metadata."""
_SIGNED = struct.Struct("<II120xI")
"""A signed image begins with a mark, the length of its payload, and another mark..."""
_MARKS = (0xB6EAFD19, 0xF27F28D7)
_SIGNATURE = 1024
"""... which end after so many bytes, with the signature. Then comes the payload."""


def _section(data: memoryview, name: str, what: Path) -> memoryview:
    """Return the content of the section ``name`` of an ELF file. Errors begin with ``what``.

    The GPU plugin has a reader of its own. This one runs on the host, without other packages.
    """
    if bytes(data[:4]) != _MAGIC or len(data) < 6 or data[5] != _LITTLE_ENDIAN:  # noqa: PLR2004
        raise HookError(f"{what}: not an ELF file")
    if data[4] not in _LAYOUTS:
        raise HookError(f"{what}: neither a 32-bit nor a 64-bit ELF file")
    header, entry = _LAYOUTS[data[4]]
    try:
        table, size, count, names_at = header.unpack_from(data)
        headers = [entry.unpack_from(data, table + index * size) for index in range(count)]
        names = bytes(_content(data, headers[names_at], what))
    except (struct.error, IndexError, OverflowError) as error:
        raise HookError(f"{what}: damaged: {error}") from error
    for found in headers:
        if names.startswith(name.encode() + b"\0", found[0]):
            return _content(data, found, what)
    raise HookError(f"{what}: no section {name}")


def _content(data: memoryview, header: tuple[int, ...], what: Path) -> memoryview:
    _, kind, offset, size = header
    if kind == _WITHOUT_CONTENT or offset + size > len(data):
        raise HookError(f"{what}: damaged: a section extends beyond the end of the file")
    return data[offset : offset + size]


@dataclass(frozen=True)
class Bitstream:
    """The content of a bitstream file."""

    path: Path
    interface_id: str
    """The interface of the regions that it is made for."""
    afu_id: str
    """The id that the port reports after programming."""
    unique_id: str
    """The id by which it is requested: the AFU's id, or for OpenCL its own."""
    image: memoryview
    signed: bool
    """Whether the image begins with a signature."""


def find(folder: Path, region: str, afu: str) -> Bitstream:
    """Return the bitstream for these ids; HookError if there is none, or it is not right."""
    for suffix in SUFFIXES:
        path = folder / region / f"{afu}{suffix}"
        data = load(path)
        if data is not None:
            files.check(path, data)
            found = parse(path, data)
            _check(found, region, afu)
            return found
    raise HookError(f"{folder / region}: no bitstream {afu}{' or '.join(SUFFIXES)}")


def load(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none; HookError as of ``files.load``."""
    return files.load(path, _LARGEST)


def parse(path: Path, data: bytes) -> Bitstream:
    """Return the bitstream in ``data``, which was read from ``path``, or raise HookError."""
    read = _read_aocx if path.suffix == OPENCL else _read_gbs
    found = read(path, memoryview(data))
    for what, text in (("is for interface", found.interface_id), ("has AFU", found.afu_id)):
        if not ID.fullmatch(text):  # or no card or port could ever report it
            raise HookError(f"{path}: {what} {_quoted(text)}, which is not an id of 32 hex digits")
    return found


def _check(bitstream: Bitstream, region: str, afu: str) -> None:
    path = bitstream.path
    if bitstream.interface_id != region:
        raise HookError(f"{path}: is for interface {_quoted(bitstream.interface_id)}, not {region}")
    if bitstream.unique_id != afu:
        raise HookError(f"{path}: has {_quoted(bitstream.unique_id)}, not {afu}")


def _quoted(text: str) -> str:
    return f"'{shown(text, 80)}'"


def _read_gbs(path: Path, data: memoryview) -> Bitstream:
    """Read Intel's green bitstream: a header, metadata in JSON, and the image."""
    try:
        *guid, length = _HEADER.unpack_from(data)
    except struct.error:
        raise HookError(f"{path}: too short for a bitstream") from None
    start = _HEADER.size + length
    if tuple(guid) != _GUID or length not in _METADATA:
        raise HookError(f"{path}: not a green bitstream, or damaged")
    if start >= len(data):
        raise HookError(f"{path}: cut off: {len(data)} bytes, and its image begins after {start}")
    try:
        image = json.loads(bytes(data[_HEADER.size : start]))["afu-image"]
        (cluster,) = image["accelerator-clusters"]
        interface, afu = _id(image["interface-uuid"]), _id(cluster["accelerator-type-uuid"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HookError(f"{path}: metadata is not valid: {shown(repr(error), 200)}") from error
    signed = _is_signed(path, data[start:])
    return Bitstream(path, interface, afu, afu, data[start:], signed)


def _is_signed(path: Path, image: memoryview) -> bool:
    """Refuse a signed image that is shorter than its header says. Others have no length."""
    if len(image) < _SIGNED.size:
        return False
    mark, length, second = _SIGNED.unpack_from(image)
    if (mark, second) != _MARKS:
        return False
    wanted = _SIGNATURE + max(1, length)
    if len(image) < wanted:
        raise HookError(f"{path}: cut off: its signed image has {len(image)} bytes of {wanted}")
    return True


def _read_aocx(path: Path, data: memoryview) -> Bitstream:
    """Read an OpenCL program: ELF in ELF, with a packed green bitstream inside."""
    program = _section(data, ".acl.fpga.bin", path)
    packed = _section(program, ".acl.gbs.gz", path)
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        gbs = unpacker.decompress(packed, _LARGEST)
    except zlib.error as error:
        raise HookError(f"{path}: .acl.gbs.gz: {error}") from error
    if not unpacker.eof:
        raise HookError(f"{path}: .acl.gbs.gz: more than {_LARGEST} bytes, or cut off")
    inner = _read_gbs(path, memoryview(gbs))
    unique = bytes(_section(data, ".acl.rand_hash", path)).decode("ascii", "replace")
    return Bitstream(path, inner.interface_id, inner.afu_id, _id(unique), inner.image, inner.signed)


def _id(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not an id")
    return value.strip().replace("-", "").lower()
