"""A filter in the kernel for its events, so that those of no interest wake no process.

An event begins with ``ACTION@DEVPATH`` and a zero byte. The subsystem comes later, at no fixed
place, so the filter looks at the path: it drops those whose path says their subsystem.
"""

import ctypes
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_ACTIONS: Final = (3, 4, 6, 7)
"""The lengths of all actions: add, move and bind, remove and change, offline."""
_MAX_NAME: Final = 15
"""The longest name of a network interface."""
_SO_ATTACH_FILTER: Final = 26

# Instructions of classic BPF. Those that load look from X, which is where the path begins.
_LOAD_BYTE_AT: Final = 0x30
_LOAD: Final = {4: 0x40, 2: 0x48, 1: 0x50}
_SET_X: Final = 0x01
_JUMP: Final = 0x05
_IS: Final = 0x15
_RETURN: Final = 0x06
_ALL: Final = 0xFFFFFFFF


class _Instruction(NamedTuple):
    code: int
    operand: int | str = 0
    """A number, or for a jump a label."""
    otherwise: str = ""
    """For a comparison, the label to go to if it fails."""


_Line = _Instruction | str
"""An instruction, or a label of the next one."""


def attach(end: int, wanted: Callable[[str], bool]) -> None:
    """Have the kernel drop events on the socket ``end`` whose subsystem is not ``wanted``.

    It drops what it can tell by the path: of ``module``, ``bdi``, and of virtual interfaces ``net``
    and ``queues``. So the caller still gets events of other subsystems that are not wanted.

    Raises:
        OSError: The kernel refuses it.
    """
    code = _assembled([*_find_path(), *_drops(wanted), "keep", _Instruction(_RETURN, _ALL)])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    with socket.socket(fileno=end) as borrowed:
        try:
            borrowed.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        finally:
            borrowed.detach()


def _find_path() -> Iterator[_Line]:
    """Set X to the place where the path begins."""
    for length in _ACTIONS:
        yield _Instruction(_LOAD_BYTE_AT, length)
        yield _Instruction(_IS, ord("@"), f"not {length}")
        yield _Instruction(_SET_X, length + 1)
        yield _Instruction(_JUMP, "path")
        yield f"not {length}"
    yield _Instruction(_JUMP, "keep")
    yield "path"


def _drops(wanted: Callable[[str], bool]) -> Iterator[_Line]:
    for subsystem, prefix in (("module", "/module/"), ("bdi", "/devices/virtual/bdi/")):
        if not wanted(subsystem):
            yield from _compare(prefix, 0, otherwise=f"not {subsystem}")
            yield _Instruction(_RETURN)
            yield f"not {subsystem}"
    if not wanted("net") and not wanted("queues"):
        yield from _drop_interfaces("/devices/virtual/net/")


def _drop_interfaces(prefix: str) -> Iterator[_Line]:
    """Drop an interface and its queues. Others below it, such as the node of a macvtap, stay."""
    yield from _compare(prefix, 0, otherwise="keep")
    for place in range(len(prefix), len(prefix) + _MAX_NAME + 1):
        yield from _compare("\0", place, otherwise=f"no end at {place}")
        yield _Instruction(_RETURN)
        yield f"no end at {place}"
        yield from _compare("/", place, otherwise=f"name at {place}")
        yield from _compare("queues/", place + 1, otherwise="keep")
        yield _Instruction(_RETURN)
        yield f"name at {place}"


def _compare(text: str, place: int, *, otherwise: str) -> Iterator[_Instruction]:
    """Go on only if ``text`` is at ``place`` of the path."""
    data = text.encode()
    at = 0
    while at < len(data):
        size = next(size for size in _LOAD if at + size <= len(data))
        yield _Instruction(_LOAD[size], place + at)
        yield _Instruction(_IS, int.from_bytes(data[at : at + size]), otherwise)
        at += size


def _assembled(lines: list[_Line]) -> bytes:
    places: dict[str, int] = {}
    program: list[_Instruction] = []
    for line in lines:
        if isinstance(line, str):
            places[line] = len(program)
        else:
            program.append(line)
    return b"".join(_encoded(one, here, places) for here, one in enumerate(program, 1))


def _encoded(one: _Instruction, following: int, places: dict[str, int]) -> bytes:
    operand, skip = one.operand, 0
    if isinstance(operand, str):
        operand = places[operand] - following
    if one.otherwise:
        skip = places[one.otherwise] - following
    return struct.pack("HBBI", one.code, 0, skip, operand)
