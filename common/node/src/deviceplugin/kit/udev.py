"""Kernel events (uevents) that trigger a discovery. No other module uses pyudev.

The events come from the kernel itself, not from udevd. So neither udevd nor the host's network is
needed: the kernel sends its events to all network namespaces of the initial user namespace. A pod
with its own user namespace (``hostUsers: false``) gets none. udev adds links and properties a
little after the event: name their directories in ``watch_paths``.

This module needs ``pyudev``, from the extra ``deviceplugin[udev]``, and ``libudev.so.1``.
"""

import ctypes
import logging
import os
import select
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from threading import Event
from typing import Any, Final

from deviceplugin._platform.pollable_event import PollableEvent
from deviceplugin.errors import DiscoveryError

__all__ = ["WITHOUT_NODES", "changes"]

log = logging.getLogger(__name__)

_LENGTHS: Final = (3, 4, 6, 7)
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

WITHOUT_NODES: Final = frozenset({"bdi", "module", "net", "queues"})
"""Subsystems without device nodes. Each container that starts causes events in them."""

_POLL: Final = 0.5
"""Most seconds to wait for an event before checking ``also``, and a ``stop`` that only tells when
asked."""
_LONGEST: Final = 3600.0
"""Most seconds that poll() is given, whose milliseconds are a C int."""
_ACTIONS: Final = frozenset({"add", "remove", "change", "move", "bind", "unbind"})
_NS_GET_USERNS: Final = 0xB701
"""The ioctl that returns the user namespace that owns a namespace."""
_FIRST_USER_NAMESPACE: Final = 0xEFFFFFFD
"""The inode of the initial user namespace, which is fixed in the kernel."""


_Code = list[tuple[int, int, int]]
"""Instructions: what to do, how many to skip if a comparison fails, and a number."""
_KEEP: Final = (_RETURN, 0, 0xFFFFFFFF)
_DROP: Final = (_RETURN, 0, 0)


def attach(end: int, wanted: Callable[[str], bool]) -> None:
    """Have the kernel drop events on the socket ``end`` whose subsystem is not ``wanted``.

    It drops what it can tell by the path: of ``module``, ``bdi``, and of virtual interfaces ``net``
    and ``queues``. So the caller still gets events of other subsystems that are not wanted.

    Raises:
        OSError: The kernel refuses it.
    """
    instructions = [*_find_path(), *_drops(wanted), _KEEP]
    code = b"".join(
        struct.pack("HBBI", what, 0, skipped, number) for what, skipped, number in instructions
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(instructions), ctypes.addressof(buffer))
    with socket.socket(fileno=end) as borrowed:
        try:
            borrowed.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        finally:
            borrowed.detach()


def _find_path() -> _Code:
    """Return what sets X to the place where the path begins, and goes on behind itself."""
    code: _Code = [_KEEP]
    for length in reversed(_LENGTHS):
        found = [(_SET_X, 0, length + 1), (_JUMP, 0, len(code))]
        code = [(_LOAD_BYTE_AT, 0, length), (_IS, len(found), ord("@")), *found, *code]
    return code


def _drops(wanted: Callable[[str], bool]) -> _Code:
    code: _Code = []
    for subsystem, prefix in (("module", "/module/"), ("bdi", "/devices/virtual/bdi/")):
        if not wanted(subsystem):
            code += _if(prefix, 0, [_DROP])
    if not wanted("net") and not wanted("queues"):
        # An interface and its queues. Others below it, such as the node of a macvtap, stay.
        prefix, names = "/devices/virtual/net/", _Code()
        for place in range(len(prefix), len(prefix) + _MAX_NAME + 1):
            names += _if("\0", place, [_DROP])
            names += _if("/", place, [*_if("queues/", place + 1, [_DROP]), _KEEP])
        code += _if(prefix, 0, names)
    return code


def _if(text: str, place: int, then: _Code) -> _Code:
    """Return what does ``then`` if ``text`` is at ``place`` of the path, and else skips it."""
    data, pieces, at = text.encode(), list[tuple[int, int]](), 0
    while at < len(data):
        size = next(size for size in _LOAD if at + size <= len(data))
        pieces.append((size, at))
        at += size
    code = then
    for size, at in reversed(pieces):
        number = int.from_bytes(data[at : at + size])
        code = [(_LOAD[size], 0, place + at), (_IS, len(code), number), *code]
    return code


def changes(
    stop: Event,
    *,
    subsystems: Collection[str] = (),
    without: Collection[str] = WITHOUT_NODES,
    also: Callable[[], bool] | None = None,
    pause: Callable[[], float] | None = None,
    heard: Callable[[Mapping[str, str]], None] | None = None,
) -> Iterator[None]:
    """Yield whenever the kernel reports a change of a device, until ``stop`` is set.

    Return it from ``Plugin.changes``. It also yields when events may have been missed: when it
    begins to listen, and after too many events came at once. It returns within half a second after
    ``stop`` is set, and at once if that is the framework's.

    If events are impossible, as without libudev or in a user namespace, it logs one warning. Then
    only ``also`` makes it yield, and the periodic discovery finds the devices.

    Args:
        stop: Ends it.
        subsystems: Only events of these count, such as ``usb`` or ``tty``.
        without: Without ``subsystems``, events of all subsystems but these count.
        also: Called twice a second. While it returns True, this yields too.
        pause: Returns for how many seconds ``also`` need not be called, so that the process sleeps
            for longer than half a second. It is called before each wait.
        heard: Called with the properties of each event that counts, before this yields: ``ACTION``,
            ``DEVPATH`` and what the driver adds. Use it for facts that only the event has. Events
            can be lost.

    Raises:
        DiscoveryError: Listening fails now, for example because no file descriptor is free. The
            framework tries again.
    """
    if problem := _problem():
        reason, advice = problem
        log.warning(
            "kernel events unavailable, polling for devices",
            extra={"error": reason, "advice": advice},
        )
        yield from _without_events(stop, also, pause)
        return

    def wanted(subsystem: str) -> bool:
        return subsystem in subsystems if subsystems else subsystem not in without

    monitor = _monitor(wanted)
    while not stop.is_set():
        yield
        try:
            while not stop.is_set():
                most = _most(pause) if also else None
                event = _next_event(monitor, wanted, stop, most=most)
                if event is not None and heard is not None:
                    heard(dict(event.properties))
                if event is not None or (also is not None and also()):
                    yield
        except OSError as error:  # too many at once; the socket keeps its error for ever
            log.debug("kernel events lost", extra={"error": str(error)})
            stop.wait(_POLL)
            monitor = _monitor(wanted)


def _problem() -> tuple[str, str] | None:
    """Return why there can be no events, and what to do about it."""
    try:
        _context()
    except ImportError as error:
        return str(error), "pip install pyudev, and install libudev.so.1"
    if not _are_sent():
        return "not sent to this user namespace", "run the pod without hostUsers: false"
    return None


def _without_events(
    stop: Event, also: Callable[[], bool] | None, pause: Callable[[], float] | None
) -> Iterator[None]:
    if also is None:
        stop.wait()
    while not stop.wait(_most(pause)):
        if also is not None and also():
            yield


def _most(pause: Callable[[], float] | None) -> float:
    """Return how many seconds to wait at most before ``also`` is called."""
    return _POLL if pause is None else min(max(pause(), _POLL), _LONGEST)


def _next_event(
    monitor: Any, wanted: Callable[[str], bool], stop: Event, *, most: float | None
) -> Any:
    """Return the next event if it counts. Wait for it ``most`` seconds, or until ``stop``."""
    if isinstance(stop, PollableEvent):
        ready = select.poll()
        for end in (monitor, stop):
            ready.register(end, select.POLLIN)
        ready.poll(None if most is None else most * 1000)
        event = monitor.poll(timeout=0)
    else:
        event = monitor.poll(timeout=_POLL)
    counts = event is not None and event.action in _ACTIONS and wanted(event.subsystem)
    return event if counts else None


def _are_sent(network: Path = Path("/proc/self/ns/net")) -> bool:
    """Return whether the kernel sends events to a network namespace; True if that is unknown."""
    try:
        with network.open() as file:
            owner = ioctl(file, _NS_GET_USERNS)
    except OSError:  # it belongs to a user namespace above this one
        return True
    try:
        return os.fstat(owner).st_ino == _FIRST_USER_NAMESPACE
    finally:
        os.close(owner)


def _monitor(wanted: Callable[[str], bool]) -> Any:
    try:
        monitor = _library().Monitor.from_netlink(_context(), source="kernel")
        with suppress(OSError):  # without the filter, events of no interest only cost time
            attach(monitor.fileno(), wanted)
        monitor.start()
    except OSError as error:
        raise DiscoveryError(f"no kernel events: {error}") from error
    return monitor


def _context() -> Any:
    return _library().Context()


def _library() -> Any:
    import pyudev  # pyright: ignore[reportMissingTypeStubs]

    return pyudev
