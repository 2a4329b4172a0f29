"""Measuring a DRA driver: how soon it offers devices, and how long a claim takes."""

import threading
import time
from collections.abc import Callable
from typing import Final

from deviceplugin_testing.conformance._check import Failed
from deviceplugin_testing.conformance._process import holdings
from deviceplugin_testing.conformance._subject import Limits
from deviceplugin_testing.conformance._subject import Subject as Checked
from deviceplugin_testing.conformance.dra._node import DraNode
from deviceplugin_testing.tools.bench._figures import BenchError, Figure, Section
from deviceplugin_testing.tools.bench._subject import BenchSubject

_MIB: Final = 1024 * 1024


def measure(subject: BenchSubject, count: int, seed: int, say: Callable[[str], None]) -> Section:
    """Start the driver on a simulated node, and prepare ``count`` claims one after the other."""
    say(f"{subject.title}: preparing {count} claims")
    checked = Checked(command=subject.command)
    with checked.place() as place:
        node = DraNode(checked, place, Limits(), seed, threading.Event())
        try:
            node.start()
            figures = _measure(node, count)
        except Failed as error:
            raise BenchError(str(error)) from error
        finally:
            node.close()
    return Section(f"{subject.title}: claims", subject.command, figures)


def _measure(node: DraNode, count: int) -> list[Figure]:
    process = node.launch()
    if problem := node.wait_up():
        raise BenchError(problem)
    offered = time.monotonic() - process.started_at
    device = node.devices[0]
    prepared: list[float] = []
    repeated: list[float] = []
    released: list[float] = []
    for _ in range(count):
        claim = node.claim(device)
        for call, took in (
            (node.prepare, prepared),
            (node.prepare, repeated),
            (node.unprepare, released),
        ):
            begin = time.perf_counter()
            (answer,) = call(claim)
            took.append((time.perf_counter() - begin) * 1e6)
            if answer.error:
                raise BenchError(f"{claim['metadata']['name']}: {answer.error}")
    return [
        Figure("start to devices in slices", "ms", [offered * 1e3]),
        Figure("Prepare of 1 device", "us", prepared),
        Figure("Prepare again", "us", repeated),
        Figure("Unprepare", "us", released),
        Figure(f"RSS after {count} claims", "MiB", [holdings(process.pid).rss / _MIB]),
    ]
