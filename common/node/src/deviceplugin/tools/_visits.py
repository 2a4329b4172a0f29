"""Visiting the plugins of many nodes: several at a time, none twice at once, slow ones seldom."""

import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin.tools._plugin_pods import SILENCE, Plugin, Plugins

MOST: Final = 32
"""Visits at a time."""
FORGOTTEN: Final = 3600.0
"""Seconds after which a node without a plugin is forgotten. A plugin that is replaced is back long
before, and nothing that is remembered of a node counts for longer."""
_REST: Final = 15.0
"""A visit that took as long as a plugin may be silent is followed by a pause so many times as long.
So a node that does not answer takes a sixteenth of a thread, and 500 of them leave time for the
others."""

Visit = Callable[[Plugin], float]
"""Returns for how many seconds nothing is to be done, unless the plugin's pod changes."""


@dataclass(slots=True)
class _Node:
    visit: Visit
    seen: float
    plugin: Plugin | None = None
    """As it was visited last."""
    due: float = float("-inf")
    running: Future[float] | None = None


class Visits:
    """Visits of all nodes.

    Args:
        make: Makes what visits the plugin of a node, and has what is remembered of the node. It is
            called in one thread at a time, but not always in the same.
        pool: Runs the visits.
        clock: Says when.
    """

    def __init__(
        self, make: Callable[[str], Visit], pool: ThreadPoolExecutor, clock: Clock = MONOTONIC
    ) -> None:
        self._make = make
        self._pool = pool
        self._clock = clock
        self._nodes: dict[str, _Node] = {}

    def step(self, plugins: Mapping[str, Plugin]) -> None:
        """Begin the visits that are due."""
        now = self._clock.now()
        for name, plugin in plugins.items():
            node = self._nodes.get(name)
            if node is None:
                node = self._nodes[name] = _Node(self._make(name), now)
            node.seen = now
            self._begin(node, plugin, now)
        gone = [name for name, node in self._nodes.items() if now - node.seen > FORGOTTEN]
        for name in gone:
            del self._nodes[name]

    def _begin(self, node: _Node, plugin: Plugin, now: float) -> None:
        if node.running is not None:
            if not node.running.done():
                return
            node.due, node.running = node.running.result(), None
        if now >= node.due or plugin != node.plugin:
            node.plugin = plugin
            node.running = self._pool.submit(self._visit, node.visit, plugin)

    def _visit(self, visit: Visit, plugin: Plugin) -> float:
        """Visit a plugin, and return when it is to be visited again."""
        began = self._clock.now()
        idle = visit(plugin)
        ended = self._clock.now()
        took = ended - began
        return ended + (max(idle, _REST * took) if took >= SILENCE else idle)


def keep_visiting(make: Callable[[str], Visit], plugins: Plugins, interval: float) -> None:
    """Visit ``plugins`` every ``interval`` seconds until the process is told to stop."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    pool = ThreadPoolExecutor(MOST, thread_name_prefix="visit")
    visits = Visits(make, pool)
    try:
        while not stop.is_set():
            visits.step(plugins())
            stop.wait(interval)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
