"""Kernel events through pyudev, which is not typed.

The kernel's own source is used, not udevd's: it needs neither udevd nor the host's network, since
the kernel sends its events to all network namespaces of the first user namespace. A pod with a
user namespace of its own (``hostUsers: false``) gets none. Links and properties that udev adds come
a little later, and are found through the directories of the links or by the next periodic
discovery.
"""

import logging
import os
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from threading import Event
from typing import Any, Final

import deviceplugin as dp

log = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""Seconds between looks at whether to stop."""
_ACTIONS: Final = frozenset({"add", "remove", "change", "move", "bind", "unbind"})
_NOISE: Final = frozenset({"bdi", "module", "net", "queues"})
"""Subsystems without device nodes, of which each container that starts brings events."""


_NS_GET_USERNS: Final = 0xB701
"""Asks for the user namespace that a namespace belongs to."""
_FIRST_USER_NAMESPACE: Final = 0xEFFFFFFD
"""Its inode, which the kernel has fixed."""


def events(stop: Event) -> Iterator[None]:
    """Yield whenever the kernel tells of a device, until ``stop`` is set.

    Also for what may have been missed: before it listened, and when events were lost. Where
    events can never be had, one warning is given, and nothing comes.

    Raises:
        DiscoveryError: It cannot be now.
    """
    try:
        monitor = _monitor()
    except ImportError as error:
        _give_up(str(error), "install libudev.so.1")
        stop.wait()
        return
    if not are_sent():
        _give_up("not sent to this user namespace", "run the pod without hostUsers: false")
        stop.wait()
        return
    while not stop.is_set():
        yield
        try:
            while not stop.is_set():
                event = monitor.poll(timeout=_LOOK)
                if event is not None and is_news(event.action, event.subsystem):
                    yield
        except OSError as error:  # too many at once; the socket keeps its error for ever
            log.debug("kernel events lost", extra={"error": str(error)})
            stop.wait(_LOOK)
            monitor = _monitor()


def _give_up(reason: str, advice: str) -> None:
    log.warning(
        "no kernel events, so devices that no pattern of a path finds are looked for periodically",
        extra={"error": reason, "advice": advice},
    )


def are_sent(network: Path = Path("/proc/self/ns/net")) -> bool:
    """Tell whether the kernel sends events to a network namespace; true if that is not known."""
    try:
        with network.open() as file:
            owner = ioctl(file, _NS_GET_USERNS)
    except OSError:  # it belongs to a user namespace above this one
        return True
    try:
        return os.fstat(owner).st_ino == _FIRST_USER_NAMESPACE
    finally:
        os.close(owner)


def is_news(action: str | None, subsystem: str | None) -> bool:
    """Tell whether an event can be of a device that somebody asks for."""
    return action in _ACTIONS and subsystem not in _NOISE


def _monitor() -> Any:
    import pyudev

    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.start()
    except OSError as error:
        raise dp.DiscoveryError(f"no kernel events: {error}") from error
    return monitor
