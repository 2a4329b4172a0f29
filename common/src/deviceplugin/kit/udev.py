"""Kernel events (uevents) as reasons to discover devices. The only module that knows pyudev.

The kernel's own source is used, not udevd's: it needs neither udevd nor the host's network, since
the kernel sends its events to all network namespaces of the first user namespace. A pod with a user
namespace of its own (``hostUsers: false``) gets none. Links and properties that udev adds come a
little later than the event: name their directories in ``watch_paths``.

Needs ``pyudev``, which the extra ``deviceplugin[udev]`` brings, and ``libudev.so.1``.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from fcntl import ioctl
from pathlib import Path
from threading import Event
from typing import Any, Final

from deviceplugin.errors import DiscoveryError

__all__ = ["WITHOUT_NODES", "changes"]

log = logging.getLogger(__name__)

WITHOUT_NODES: Final = frozenset({"bdi", "module", "net", "queues"})
"""Subsystems without device nodes, of which each container that starts brings events."""

_TURN: Final = 0.5
"""Seconds between looks at anything else."""
_ACTIONS: Final = frozenset({"add", "remove", "change", "move", "bind", "unbind"})
_NS_GET_USERNS: Final = 0xB701
"""Asks for the user namespace that a namespace belongs to."""
_FIRST_USER_NAMESPACE: Final = 0xEFFFFFFD
"""Its inode, which the kernel has fixed."""


def changes(
    stop: Event,
    *,
    subsystems: Collection[str] = (),
    without: Collection[str] = WITHOUT_NODES,
    also: Callable[[], bool] | None = None,
    heard: Callable[[Mapping[str, str]], None] | None = None,
) -> Iterator[None]:
    """Yield whenever the kernel says that a device has changed, until ``stop`` is set.

    For ``Plugin.changes``. Yields also for what may have been missed: when it begins to listen, and
    after events were lost because too many came at once. Returns within half a second of ``stop``.

    Where events can never be had, as without libudev or in a user namespace, there is one warning,
    and only ``also`` goes on: the devices are found by the periodic discovery.

    Args:
        stop: Ends it.
        subsystems: Only of these, such as ``usb`` or ``tty``.
        without: Of all but these, where no ``subsystems`` are given.
        also: Asked twice a second; yields, too, while it returns True.
        heard: Given the properties of each event that calls for a discovery, before it does, such
            as ``ACTION``, ``DEVPATH`` and what the driver adds. For what only the event says;
            events can be lost.

    Raises:
        DiscoveryError: The kernel cannot be listened to now, as without free file descriptors. The
            framework tries it again.
    """
    if problem := _problem():
        reason, advice = problem
        log.warning(
            "kernel events unavailable, polling for devices",
            extra={"error": reason, "advice": advice},
        )
        yield from _without_events(stop, also)
        return
    monitor = _monitor()
    while not stop.is_set():
        yield
        try:
            while not stop.is_set():
                event = monitor.poll(timeout=_TURN)
                if event is not None and not _concerns(event, subsystems, without):
                    event = None
                if event is not None and heard is not None:
                    heard(dict(event.properties))
                if event is not None or (also is not None and also()):
                    yield
        except OSError as error:  # too many at once; the socket keeps its error for ever
            log.debug("kernel events lost", extra={"error": str(error)})
            stop.wait(_TURN)
            monitor = _monitor()


def _problem() -> tuple[str, str] | None:
    """Return why there can be no events, and what to do about it."""
    try:
        _context()
    except ImportError as error:
        return str(error), "install pyudev, as by deviceplugin[udev], and libudev.so.1"
    if not _are_sent():
        return "not sent to this user namespace", "run the pod without hostUsers: false"
    return None


def _without_events(stop: Event, also: Callable[[], bool] | None) -> Iterator[None]:
    if also is None:
        stop.wait()
    while not stop.wait(_TURN):
        if also is not None and also():
            yield


def _concerns(event: Any, subsystems: Collection[str], without: Collection[str]) -> bool:
    if event.action not in _ACTIONS:
        return False
    return event.subsystem in subsystems if subsystems else event.subsystem not in without


def _are_sent(network: Path = Path("/proc/self/ns/net")) -> bool:
    """Return whether the kernel sends events to a network namespace; True if that is not known."""
    try:
        with network.open() as file:
            owner = ioctl(file, _NS_GET_USERNS)
    except OSError:  # it belongs to a user namespace above this one
        return True
    try:
        return os.fstat(owner).st_ino == _FIRST_USER_NAMESPACE
    finally:
        os.close(owner)


def _monitor() -> Any:
    try:
        monitor = _library().Monitor.from_netlink(_context(), source="kernel")
        monitor.start()
    except OSError as error:
        raise DiscoveryError(f"no kernel events: {error}") from error
    return monitor


def _context() -> Any:
    return _library().Context()


def _library() -> Any:
    import pyudev  # pyright: ignore[reportMissingTypeStubs]

    return pyudev
