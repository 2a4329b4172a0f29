"""A node of a cluster whose DRA driver fails and waits as a test says, by the test's clock."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any, Final

from typing_extensions import override

import deviceplugin as dp
from cluster.dra_objects import DRIVER, RESOURCE
from deviceplugin_testing.simulator import ManualClock, StubDriver
from drivers.dual_node import IDS, DualNode, gopher
from patience import PATIENCE, eventually
from scripted_plugin import ScriptedPlugin

OTHER: Final = "other.example.com"
"""The name of a second driver."""


class MoodyPlugin(ScriptedPlugin):
    """Three gophers whose hooks are counted, and fail or wait."""

    def __init__(self) -> None:
        super().__init__(*map(gopher, IDS), resource=RESOURCE)
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.gate = Event()
        self.gate.set()

    def _called(self, hook: str) -> None:
        self.calls.append(hook)
        self.gate.wait(PATIENCE)
        if hook in self.failing:
            raise dp.AllocationError("it failed")

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        self._called("allocate")
        return super().allocate(devices)

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        self._called("released")


class PlayedNode(DualNode):
    """Time passes for the kubelet as ``until`` waits."""

    plugin: MoodyPlugin

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        super().__init__(root, clock=self.clock)
        self.plugin = MoodyPlugin()

    def start_driver(self) -> None:
        """Start the process, and wait until it is registered and its devices are offered."""
        self.start(protocol="dra")
        eventually(lambda: self.by_dra() and DRIVER in self.kubelet.dra.connected, "the driver")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until ``condition`` holds, while a second passes for the kubelet at each look."""

        def holds() -> bool:
            self.clock.advance(1)
            return bool(condition())

        eventually(holds, lambda: f"{what}; {self.kubelet.dra.problems}", every=0.02)

    def claiming(
        self, name: str, *claims: str, containers: Sequence[Any] = (), **spec: Any
    ) -> None:
        """Create a pod whose containers use claims; by default one that uses all."""
        entries = [{"name": one, "resourceClaimName": one} for one in claims]
        uses = [{"name": "main", "resources": {"claims": [{"name": one} for one in claims]}}]
        made = [{"image": "none", **one} for one in containers or uses]
        self.make.pod(name, containers=made, **{"resourceClaims": entries, **spec})

    def phase(self, name: str) -> str:
        """Return the phase of a pod; an empty string if it is gone."""
        found = self.cluster.get("Pod", name)
        return str(found["status"].get("phase", "Pending")) if found else ""

    def wait_phase(self, phase: str, *names: str) -> None:
        """Wait until the pods are in a phase; an empty one is for pods that are gone."""
        self.until(lambda: {phase} == {*map(self.phase, names)}, f"{names} to be {phase or 'gone'}")

    def prepared(self, *claims: str) -> list[str]:
        """Return which of the claims are prepared on the node."""
        return [one for one in claims if self.kubelet.dra.prepared(one)]

    def why_pending(self, name: str) -> str:
        """Return why the containers of a pod do not start."""
        statuses = self.make.status(name).get("containerStatuses", ())
        return " ".join(one["state"].get("waiting", {}).get("message", "") for one in statuses)

    def other_driver(self) -> StubDriver:
        """Return a second driver, which serves, with a device in a slice and a claim ``o``."""
        selector = {"cel": {"expression": f'device.driver == "{OTHER}"'}}
        self.make.device_class("other", selectors=[selector])
        stub = StubDriver(self.kubelet.registry_dir, OTHER, cdi_dir=self.kubelet.cdi_dirs[0])
        stub.start()
        eventually(lambda: OTHER in self.kubelet.dra.connected, "the other driver")
        pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
        self.make.slice("device", "spare", driver=OTHER, pool=pool)
        self.make.claim("o", deviceClassName="other")
        return stub
