"""Measuring a DRA driver: how soon it offers devices, and how long a claim takes."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from deviceplugin_testing.conformance._check import Failed
from deviceplugin_testing.conformance._process import activity, holdings
from deviceplugin_testing.conformance._subject import Limits
from deviceplugin_testing.conformance._subject import Subject as Checked
from deviceplugin_testing.conformance.dra._node import DraNode, Offered
from deviceplugin_testing.simulator import CallError
from deviceplugin_testing.tools.bench._figures import BenchError, Figure, Section
from deviceplugin_testing.tools.bench._subject import BenchSubject

_MIB: Final = 1024 * 1024
_PATIENT: Final = Limits(start=60.0, within=60.0)
_SIZES: Final = (1, 8, 64)
"""Claims in one call, as far as there are devices."""


def measure(subject: BenchSubject, count: int, seed: int, say: Callable[[str], None]) -> Section:
    """Start the driver on a simulated node, and prepare ``count`` claims one after the other.

    Then as many, as far as they come out even, 8 and 64 at once.
    """
    say(f"{subject.title}: preparing {count} claims")
    checked = Checked(command=subject.command)
    with checked.place() as place:
        node = DraNode(checked, place, _PATIENT, seed, threading.Event())
        try:
            node.start()
            figures = _measure(node, count)
        except (Failed, CallError) as error:
            raise BenchError(str(error)) from error
        finally:
            node.close()
    return Section(f"{subject.title}: claims", subject.command, figures)


def _measure(node: DraNode, count: int) -> list[Figure]:
    process = node.launch()
    if problem := node.wait_up():
        raise BenchError(problem)
    offered = time.monotonic() - process.started_at
    figures = [
        Figure("start to devices in slices", "ms", [offered * 1e3]),
        Figure("CPU until devices are in slices", "ms", [activity(process.pid).total / 1e6]),
    ]
    devices = node.devices
    for size in _SIZES:
        if len(devices) >= size:
            figures += _batches(node, devices[:size], max(1, count // size))
    held = holdings(process.pid)
    return [
        *figures,
        Figure(f"RSS after {count} claims", "MiB", [held.rss / _MIB]),
        Figure(f"private after {count} claims", "MiB", [held.private / _MIB]),
        Figure(f"threads after {count} claims", "", [held.threads]),
    ]


def _batches(node: DraNode, devices: Sequence[Offered], count: int) -> list[Figure]:
    """Prepare a claim of each device in one call, and unprepare them, ``count`` times."""
    noun = "device" if len(devices) == 1 else "devices"
    calls = {
        f"Prepare of {len(devices)} {noun}": node.prepare,
        f"Prepare of {len(devices)} {noun} again": node.prepare,
        f"Unprepare of {len(devices)} {noun}": node.unprepare,
    }
    took: dict[str, list[float]] = {name: [] for name in calls}
    worked: list[float] = []
    for _ in range(count):
        claims = [node.claim(device) for device in devices]
        for name, call in calls.items():
            before, begin = activity(node.pid), time.perf_counter()
            answers = call(*claims)
            took[name].append((time.perf_counter() - begin) * 1e6)
            if name == next(iter(calls)):
                worked.append(activity(node.pid).since(before)[0] * 1e6)
            if error := next((one.error for one in answers if one.error), ""):
                raise BenchError(f"{name}: {error}")
    return [
        *(Figure(name, "us", values) for name, values in took.items()),
        Figure(f"CPU of a Prepare of {len(devices)} {noun}", "us", worked),
    ]
