"""Builds bitstreams: Intel's GBS, and OpenCL's AOCX around it."""

import gzip
import json
import struct
from collections.abc import Mapping
from typing import Any

from fpga.trees import AFU, INTERFACE


def metadata(interface: str = INTERFACE, afu: str = AFU) -> dict[str, Any]:
    cluster = {"name": "nlb", "total-contexts": 1, "accelerator-type-uuid": afu}
    return {
        "version": 1,
        "afu-image": {"interface-uuid": interface, "accelerator-clusters": [cluster]},
    }


def gbs(
    interface: str = INTERFACE,
    afu: str = AFU,
    *,
    about: object = None,
    magic: bytes = b"XeonFPGA\xb7GBSv001",
    length: int | None = None,
    image: bytes | None = None,
) -> bytes:
    """Return a green bitstream; its image is the AFU's id, for fakes to read."""
    text = json.dumps(metadata(interface, afu) if about is None else about).encode()
    size = len(text) if length is None else length
    return magic + struct.pack("<I", size) + text + (afu.encode() if image is None else image)


def signed(payload: bytes, *, length: int | None = None) -> bytes:
    """Return a signed image: what it says of itself, its signature, and the payload."""
    about = struct.pack("<II", 0xB6EAFD19, len(payload) if length is None else length)
    return about.ljust(128, b"\0") + struct.pack("<I", 0xF27F28D7).ljust(896, b"\0") + payload


def elf(sections: Mapping[str, bytes], *, bits: int = 64) -> bytes:
    """Return an ELF file with ``sections``."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    contents = [*sections.values(), names]
    header, entry = (64, "<IIQQQQIIQQ") if bits == 64 else (52, "<IIIIIIIIII")
    offset, table, body = header, b"", b""
    for name, content in zip((*sections, ".shstrtab"), contents, strict=True):
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        table += struct.pack(entry, at, 1, 0, 0, offset, len(content), 0, 0, 1, 0)
        body += content
        offset += len(content)
    first = struct.pack(entry, *[0] * 10)
    count = len(contents) + 1
    word = "Q" if bits == 64 else "I"
    top = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    places = (0, 0, offset)  # entry point, programs, sections
    sizes = (header, 0, 0, struct.calcsize(entry), count, count - 1)
    top += struct.pack(f"<HHI3{word}I6H", 1, 0, 1, *places, 0, *sizes)
    return top + body + first + table


def aocx(unique: str, inner: bytes | None = None, *, bits: int = 64) -> bytes:
    """Return an OpenCL program with the id ``unique`` around a green bitstream."""
    packed = gzip.compress(gbs() if inner is None else inner)
    program = elf({".acl.gbs.gz": packed}, bits=bits)
    return elf({".acl.rand_hash": unique.encode(), ".acl.fpga.bin": program}, bits=bits)
