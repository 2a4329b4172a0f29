"""An operator on a fleet of nodes, both in this process, without kopf."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.kinds import DAEMON_SET, EVENT, Object
from deviceplugin.apiserver import ApiServer
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.controller import Controller
from deviceplugin_operator.reconciling.judge import Timing
from operators.fleet_cluster import SPACE, Fleet
from patience import eventually

DEADLINE = 121.0
"""Seconds, just more than a node is given."""


class MortalServer(ApiServer):
    """An API server that ends the thread of whoever has changed something there so many times."""

    writes = 0
    versions: set[str]
    """Of objects that were written: one that stays as it is keeps its own."""

    def _ask(self, method: str, *words: Any, **more: Any) -> Object:
        answer = super()._ask(method, *words, **more)
        version = answer.get("metadata", {}).get("resourceVersion", "")
        if method != "GET" and self.writes and version not in self.versions:
            self.versions.add(version)
            self.writes -= 1
            if not self.writes:
                raise SystemExit
        return answer


@dataclass
class Managed:
    """A fleet, and the operator that looks after it; it looks at everything often, not by kopf."""

    fleet: Fleet
    calls: list[str] = field(default_factory=list)
    ahead: float = 0.0
    """Seconds that the operator's clock is ahead, so that no test waits for a deadline."""
    nodes_every: float = 0.3
    """Seconds between looks at all nodes while nothing is rolled out."""
    controller: Controller | None = None
    versions: set[str] = field(default_factory=set)

    def _timing(self) -> Timing:
        return Timing(
            soon=0.03, settle=0.1, window=30.0, nodes=0.1, now=lambda: time.time() + self.ahead
        )

    def start(self, writes: int = 0) -> Controller:
        """Start one; it does nothing more after so many writes."""

        def count(method: str, _status: int) -> None:
            self.calls.append(method)

        api = MortalServer(self.fleet.url, count=count)
        api.writes, api.versions = writes, self.versions
        made = Controller(
            api, SPACE, timing=self._timing(), nodes_every=self.nodes_every, lists_every=0.1
        )
        made.start()
        self.controller = made
        return made

    def stop(self) -> None:
        if self.controller:
            self.controller.stop()
            self.controller = None

    def wait(self, condition: Callable[[], object]) -> None:
        eventually(condition)

    def apply(self, simulated: Mapping[str, object] | None = None, name: str = "sim") -> None:
        """Have the simulated plugin, with some settings."""
        self.fleet.apply(name, plugin="simulated", simulated=dict(simulated or {}))

    def install(self, simulated: Mapping[str, object] | None = None, name: str = "sim") -> None:
        """Do so, and wait until all is well."""
        self.apply(simulated, name)
        self.wait(lambda: self.fleet.is_ready(name))

    def events(self, reason: str) -> list[str]:
        """Return the messages of the Events with a reason."""
        return [one["message"] for one in self.fleet.store.list(EVENT) if one["reason"] == reason]

    def revision(self) -> Object:
        """Return what the status has of the general settings."""
        found: Object = self.fleet.status("sim")["revisions"][0]
        return found

    def wait_for(self, reason: str, kind: str = "Ready", name: str = "sim") -> None:
        """Wait until a condition has a reason."""
        self.wait(lambda: self.fleet.condition(name, kind)[1] == reason)

    def pass_deadline(self, daemon_set: str = "dp-sim", *, ready: bool = False) -> None:
        """Have the nodes that are waited for be late, once the operator has noted since when.

        With ``ready``, it has noted as well that a new pod is ready.
        """
        self.wait(lambda: self._is_waiting(daemon_set, ready=ready))
        self.ahead += DEADLINE

    def _is_waiting(self, name: str, *, ready: bool) -> bool:
        if not self.fleet.store.exists(DAEMON_SET, SPACE, name):
            return False
        progress = progress_note.read(self.fleet.daemon_set(name))
        pods = self.fleet.pods()
        late = (one for node, one in progress.taken.items() if node in pods and one.since)
        if ready:
            return any(one.ready for one in late)
        return any(not one.ready or any(one.before.values()) for one in late)
