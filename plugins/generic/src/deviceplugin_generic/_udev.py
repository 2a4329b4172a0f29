"""Kernel events through pyudev, which is not typed.

The kernel's own source is used, not udevd's: it needs neither udevd nor the host's network, since
the kernel sends its events to all network namespaces of the first user namespace. Links and
properties that udev adds come a little later, and are found through the directories of the links
or by the next periodic discovery.
"""

from collections.abc import Iterator
from threading import Event
from typing import Any, Final

import deviceplugin as dp

_LOOK: Final = 0.5
"""Seconds between looks at whether to stop."""
_ACTIONS: Final = frozenset({"add", "remove", "change", "move", "bind", "unbind"})
_NOISE: Final = frozenset({"bdi", "module", "net", "queues"})
"""Subsystems without device nodes, of which each container that starts brings events."""


def events(stop: Event) -> Iterator[None]:
    """Yield whenever the kernel tells of a device, until ``stop`` is set.

    Raises:
        DiscoveryError: This system has no libudev, or no such events.
    """
    monitor = _monitor()
    while not stop.is_set():
        event = monitor.poll(timeout=_LOOK)
        if event is not None and is_news(event.action, event.subsystem):
            yield


def is_news(action: str | None, subsystem: str | None) -> bool:
    """Tell whether an event can be of a device that somebody asks for."""
    return action in _ACTIONS and subsystem not in _NOISE


def _monitor() -> Any:
    try:
        import pyudev

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.start()
    except (ImportError, OSError) as error:
        raise dp.DiscoveryError(f"no kernel events: {error}") from error
    return monitor
