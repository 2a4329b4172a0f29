"""Who holds which hardware, without a kubelet: plugins, pods and claims, a word each."""

from collections.abc import Iterable, Mapping

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim, Mode, Ownership
from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, Key
from deviceplugin._attribution.stale import DevicesByResource, Given
from deviceplugin._inventory.published import Resource
from deviceplugin.errors import AllocationError
from held_clock import HeldClock
from scripted_plugin import ScriptedPlugin

A, B = "x.io/a", "x.io/b"
KUBELET = (1, 1, 1)


class World:
    """Plugins that discover devices, and pods and claims that get them."""

    def __init__(self, mode: Mode = "device-plugin") -> None:
        self.clock = HeldClock()
        self.resources: dict[str, Resource] = {}
        self.ownership = Ownership(
            mode,
            timing=AttributionTiming.of(30),
            resources=lambda: self.resources,
            clock=self.clock,
        )
        self.news = 0
        self.ownership.hardware.changes.add(self._count)
        self.pods()

    def _count(self) -> None:
        self.news += 1

    def discover(self, plugin: str = "P", **resources: Iterable[dp.Device]) -> None:
        """``plugin`` has these devices now; ``a`` and ``b`` are the resources of that name."""
        found = {f"x.io/{name}": {one.id: one for one in of} for name, of in resources.items()}
        self.publish(found, plugin)

    def look(self, plugin: dp.Plugin) -> None:
        """The only plugin that there is discovers what it has now."""
        found: dict[str, dict[str, dp.Device]] = {name: {} for name in self.resources}
        for one in plugin.discover():
            found.setdefault(str(one.resource), {})[one.id] = one
        self.publish(found)

    def publish(self, found: DevicesByResource, plugin: str = "P") -> None:
        """``plugin`` has these devices now, by id and by resource."""
        self.ownership.hardware.identify(plugin, found)
        for name in self.resources.keys() | found.keys():
            self.resources.setdefault(name, Resource(name, ScriptedPlugin()))
        for name, devices in found.items():
            self.resources[name].publish(devices.values())

    def allocate(self, *ids: str, resource: str = A) -> str:
        """Why an Allocate is refused; empty if it is granted."""
        try:
            with self.ownership.allocating(resource, ids):
                return ""
        except AllocationError as error:
            return str(error)

    def prepare(self, claim: Claim, *keys: Key) -> str:
        """Why a Prepare is refused; empty if it is granted."""
        try:
            self.ownership.prepare(claim, keys)
            self.ownership.hardware.renew(keys)
        except AllocationError as error:
            return str(error)
        return ""

    def pods(
        self, *held: Key, recorded: Mapping[Key, Given] | None = None, known: bool = True
    ) -> None:
        """The kubelet is asked so often that what is not ``held`` is certainly free."""
        holds = frozenset(Hold(r, i, "default", f"pod-{i}", "main") for r, i in held)
        for _ in range(3):
            self.clock.advance(10)
            holdings = Holdings(holds if known else None)
            self.ownership.observe(holdings, KUBELET, (recorded or {}).get)

    def closed(self, resource: str = A) -> Mapping[str, str]:
        """The devices that nobody gets because they are held under another id."""
        return self.ownership.elsewhere(resource)

    def withheld(self, resource: str = A) -> set[str]:
        """The devices that the kubelet gets as unhealthy."""
        return set(self.ownership.withheld(resource, self.resources[resource].devices))
