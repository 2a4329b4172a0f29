"""Kernel events through pyudev, which is not typed.

The kernel's own source is used, not udevd's: it needs neither udevd nor the host's network.
"""

import logging
from collections.abc import Iterator
from threading import Event
from typing import Any, Final

import deviceplugin as dp

log = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""Seconds between looks at anything else."""
_OF_FPGAS: Final = frozenset({"dfl", "fpga", "fpga_region", "pci", "platform"})
"""Subsystems of cards, their functions, regions, engines and ports."""


def events(stop: Event) -> Iterator[bool]:
    """Yield until ``stop`` is set: True for an event of an FPGA, False twice a second without.

    True also for what may have been missed: before it listened, and after events were lost.

    Raises:
        DiscoveryError: This system has no libudev, or no such events.
    """
    while not stop.is_set():
        monitor = _monitor()
        yield True
        try:
            while not stop.is_set():
                event = monitor.poll(timeout=_LOOK)
                yield event is not None and event.subsystem in _OF_FPGAS
        except OSError as error:  # too many at once; the socket keeps its error for ever
            log.debug("kernel events lost", extra={"error": str(error)})
            stop.wait(_LOOK)


def _monitor() -> Any:
    try:
        import pyudev

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.start()
    except (ImportError, OSError) as error:
        raise dp.DiscoveryError(f"no kernel events: {error}") from error
    return monitor
