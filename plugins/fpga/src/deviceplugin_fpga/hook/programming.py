"""Programming the regions that a container requests, which nothing else in the plugin does."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deviceplugin.kit.sysfs import OddError, Sysfs, SysfsError
from deviceplugin_fpga import drivers
from deviceplugin_fpga.drivers import ALL_ONES, DFL, OPAE, Driver, Port
from deviceplugin_fpga.hook.bitstreams import find
from deviceplugin_fpga.hook.files import HookError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deviceplugin_fpga.hook.bitstreams import Bitstream
    from deviceplugin_fpga.hook.container_request import Node, Request, Wish


_ARGUMENT = struct.Struct("=IIIIQ")
"""The argument: its own size, flags, number of the port, size and address of the image."""
_CALLS = {DFL.name: (0xB680, 0), OPAE.name: (0xB580, 8)}
"""Number of the request, and bytes after the argument for the hardware's answer."""


class Kernel:
    """Programs through the kernel's drivers. Device nodes are in ``dev``."""

    def __init__(self, dev: Path) -> None:
        self._dev = dev

    def program(self, driver: Driver, fme: str, port: int, image: memoryview) -> None:
        """Write ``image`` into the region of ``port``, through the engine ``fme``, for seconds."""
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


_LOOK = 0.02
"""Seconds between attempts to take the lock."""


@dataclass(frozen=True)
class Region:
    """A region that the container has, with the port that leads to it."""

    driver: Driver
    port: Port
    fme: str
    interface_id: str

    def programmed(self) -> str:
        """Return the id of the programmed function; empty if the kernel does not say."""
        try:
            return self.port.afu_id()
        except SysfsError:
            return ""


@contextmanager
def locked(path: Path, patience: float) -> Iterator[None]:
    """Hold the node's lock against other hooks; HookError after ``patience`` seconds.

    The kernel frees the lock of a process that dies.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        end = time.monotonic() + patience
        while not _try_lock(descriptor):
            if not time.monotonic() <= end:  # nor for a patience that is NaN
                raise HookError(f"{path}: another hook has had the lock for {patience:g} s")
            time.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def fulfil(request: Request, sysfs: Sysfs, bitstreams: Path, kernel: Kernel) -> list[str]:
    """Program all regions as ``request`` says, and return the names of those that were changed.

    Nothing is programmed before all bitstreams are found and valid. The caller must hold the lock.
    """
    regions = [_region(node, sysfs) for node in request.nodes]
    todo = [
        (region, find(bitstreams, wish.region, wish.afu))
        for wish, region in assign(request.wishes, regions)
    ]
    for region, bitstream in todo:
        _program(region, bitstream, kernel)
    return [region.port.name for region, _ in todo]


def assign(wishes: tuple[Wish, ...], regions: list[Region]) -> list[tuple[Wish, Region]]:
    """Return which region to use for which wish; HookError if there are not enough.

    A region that already has the function serves a wish for it. Each other wish gets the first
    remaining region of its interface.
    """
    free, open_wishes = list(regions), []
    for wish in wishes:
        for region in free:
            if region.interface_id == wish.region and region.programmed() == wish.afu:
                free.remove(region)
                break
        else:
            open_wishes.append(wish)
    pairs = []
    for wish in open_wishes:
        fitting = [region for region in free if region.interface_id == wish.region]
        if not fitting:
            name = f"FPGA_REGION_{shown(wish.number, 20)}"
            raise HookError(f"{name}: no free port of interface {wish.region}")
        free.remove(fitting[0])
        pairs.append((wish, fitting[0]))
    return pairs


def _region(node: Node, sysfs: Sysfs) -> Region:
    try:
        port = _port(node, sysfs)
        fme = drivers.fme_of(node.driver, port)
        interface_id = drivers.interface_id(node.driver, fme, sysfs)
    except SysfsError as error:
        raise HookError(str(error)) from error
    if interface_id == ALL_ONES:
        raise HookError(f"{fme.name}: interface id is all ones: the hardware does not answer")
    return Region(node.driver, port, fme.name, interface_id)


def _port(node: Node, sysfs: Sysfs) -> Port:
    folder = sysfs.follow(f"dev/char/{node.number}")
    if folder.name != node.name:
        raise OddError(node.name, f"device {node.number} is {folder.name}")
    return drivers.port_at(node.driver, folder, sysfs)


def _program(region: Region, bitstream: Bitstream, kernel: Kernel) -> None:
    port = region.port
    try:
        kernel.program(region.driver, region.fme, port.number(), bitstream.image)
        now = port.afu_id()
    except (OSError, SysfsError) as error:
        raise HookError(f"{port.name}: {bitstream.path}: not programmed: {error}") from error
    if now != bitstream.afu_id:
        raise HookError(f"{port.name}: has AFU {now} after programming, not {bitstream.afu_id}")
