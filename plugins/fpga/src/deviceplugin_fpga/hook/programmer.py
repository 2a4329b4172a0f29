"""Programming hardware, which nothing else in the plugin does."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
from typing import TYPE_CHECKING, Protocol

from deviceplugin_fpga.drivers import DFL, OPAE, Driver

if TYPE_CHECKING:
    from pathlib import Path


class Programmer(Protocol):
    """Writes an image into a region."""

    def program(self, driver: Driver, fme: str, port: int, image: memoryview) -> None:
        """Write ``image`` into the region of ``port``, through the engine ``fme``.

        Raises:
            OSError: It failed.
        """


_ARGUMENT = struct.Struct("=IIIIQ")
"""The argument: its own size, flags, number of the port, size and address of the image."""
_CALLS = {DFL.name: (0xB680, 0), OPAE.name: (0xB580, 8)}
"""Number of the request, and bytes after the argument for the hardware's answer."""


class Kernel:
    """Programs through the kernel's drivers. Device nodes are in ``dev``."""

    def __init__(self, dev: Path) -> None:
        self._dev = dev

    def program(self, driver: Driver, fme: str, port: int, image: memoryview) -> None:
        """Write ``image``, as ``Programmer`` describes. This takes seconds."""
        request, room = _CALLS[driver.name]
        # A copy at a fixed address, because the image itself is read-only.
        copy = (ctypes.c_char * len(image)).from_buffer_copy(image)
        fields = (_ARGUMENT.size + room, 0, port, len(image), ctypes.addressof(copy))
        argument = bytearray(_ARGUMENT.pack(*fields)) + bytes(room)
        descriptor = os.open(self._dev / fme, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, request, argument, True)  # noqa: FBT003 - its signature
        except OSError as error:
            status = int.from_bytes(argument[_ARGUMENT.size :], sys.byteorder)
            text = f"{error.strerror}: status {status:#x}" if status else error.strerror
            raise OSError(error.errno, text, fme) from error
        finally:
            os.close(descriptor)
