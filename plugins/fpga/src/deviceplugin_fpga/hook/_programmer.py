"""The one place that programs hardware."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from deviceplugin_fpga._drivers import DFL, OPAE, Driver

if TYPE_CHECKING:
    from pathlib import Path


class Programmer(Protocol):
    """What writes an image into a region."""

    def program(self, driver: Driver, fme: str, port: int, image: memoryview) -> None:
        """Write ``image`` into the region of ``port``, through the engine ``fme``.

        Raises:
            OSError: It cannot be done.
        """


@dataclass(frozen=True)
class _Call:
    request: int
    layout: struct.Struct
    """Of the argument: its own size, flags, number of the port, size and address of the image; and,
    with OPAE, room for what the hardware says."""


_CALLS = {
    DFL.name: _Call(0xB680, struct.Struct("=IIIIQ")),
    OPAE.name: _Call(0xB580, struct.Struct("=IIIIQQ")),
}


class Kernel:
    """The kernel's drivers. Device nodes are in ``dev``."""

    def __init__(self, dev: Path) -> None:
        self._dev = dev

    def program(self, driver: Driver, fme: str, port: int, image: memoryview) -> None:
        """Write ``image`` as ``Programmer`` says. Waits for the hardware, for seconds."""
        call = _CALLS[driver.name]
        size = len(image)
        # A copy at an address that stays; the image itself cannot be written to.
        room = (ctypes.c_char * size).from_buffer_copy(image)
        fields = [call.layout.size, 0, port, size, ctypes.addressof(room)]
        status = [0] if driver is OPAE else []
        argument = bytearray(call.layout.pack(*fields, *status))
        descriptor = os.open(self._dev / fme, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, call.request, argument, True)  # noqa: FBT003 - as it is declared
        except OSError as error:
            raise OSError(error.errno, _reason(call, error, argument), fme) from error
        finally:
            os.close(descriptor)


def _reason(call: _Call, error: OSError, argument: bytearray) -> str:
    text = error.strerror or str(error)
    *_, last = call.layout.unpack(argument)
    if call is _CALLS[OPAE.name] and error.errno == errno.EIO and last:
        return f"{text}: status {last:#x}"
    return text
