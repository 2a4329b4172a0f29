"""Sections of ELF files. Every offset is checked before use."""

from __future__ import annotations

import struct

from deviceplugin_fpga.hook.errors import HookError

_MAGIC = b"\x7fELF"
_LITTLE_ENDIAN = 1
# In the header: offset of the section table, size and number of its entries, index of the names.
# In a section: name, type, offset, size.
_LAYOUTS = {
    1: (struct.Struct("<32xI10xHHH"), struct.Struct("<II8xII")),
    2: (struct.Struct("<40xQ10xHHH"), struct.Struct("<II16xQQ")),
}
_WITHOUT_CONTENT = 8


def section(data: memoryview, name: str, what: str) -> memoryview | None:
    """Return the content of the section ``name``, or None if there is no such section.

    Raises:
        HookError: ``data`` is not an ELF file, or is damaged. The message begins with ``what``.
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
    return None


def _content(data: memoryview, header: tuple[int, ...], what: str) -> memoryview:
    _, kind, offset, size = header
    if kind == _WITHOUT_CONTENT or offset + size > len(data):
        raise HookError(f"{what}: damaged: a section extends beyond the end of the file")
    return data[offset : offset + size]
