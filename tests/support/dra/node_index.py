"""An index of slices by their nodes, as a real API server has it.

The simulated one wakes all watches for each change, and copies all slices for each list.
"""

import json
from collections import defaultdict
from functools import cache
from typing import Any, Final

from typing_extensions import override

from deviceplugin_testing.simulator._control_plane.kinds import Kind
from deviceplugin_testing.simulator._control_plane.store import Store
from deviceplugin_testing.simulator._monitor import Monitor
from driven_clock import DrivenClock


class Dispatch(Monitor):
    """Wakes the watches of the node whose slice has changed, as a real server does, and no other.

    Without it, each change of a slice would wake thousands of threads.
    """

    def __init__(self, store: Store, clock: DrivenClock) -> None:
        super().__init__(clock)
        self._store = store
        self._seen = store.version
        self.by_node: dict[str, set[Monitor]] = defaultdict(set)

    @override
    def poke(self) -> None:
        with self:
            changes = self._store.since(self._seen)
            self._seen = self._store.version
            named = {one.last.get("spec", {}).get("nodeName") for one in changes}
            for node in named if changes else [*self.by_node]:
                for each in [*self.by_node.get(node, ())]:
                    each.poke()


_parsed: Final = cache(json.loads)


def listed(store: Store, kind: Kind, namespace: str = "") -> list[Any]:
    """Return all objects, none of which may be changed: thousands of lists do not copy them."""
    with store.changed:
        found = sorted(store._objects[kind].items())
        return [_parsed(one) for (place, _), one in found if namespace in {"", place}]


class View:
    """The store, as a watch sees it that is woken alone."""

    def __init__(self, store: Store, clock: DrivenClock) -> None:
        self._store = store
        self.changed = Monitor(clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
