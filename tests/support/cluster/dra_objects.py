"""Slices, claims and pods in a simulated cluster, in few words."""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from typing_extensions import override

from cluster.real_controllers import RealCluster
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin.apiserver import ApiServer
from deviceplugin_testing.simulator import ManualClock, SimulatedCluster
from patience import eventually

Object = dict[str, Any]
DRIVER: Final = "gopher.example.com"
RESOURCE: Final = "example.com/gopher"


class Hurried(Clock):
    """A clock for which a second takes 50 ms."""

    @override
    def now(self) -> float:
        return 20 * time.monotonic()

    @override
    def wait(self, event: threading.Event, until: float) -> None:
        MONOTONIC.wait(event, until / 20)


class Objects:
    """What tests create in a cluster of one node, n1."""

    def __init__(self, cluster: "SimulatedCluster | RealCluster") -> None:
        self.cluster = cluster

    def slice(self, *names: str, metadata: Object | None = None, **spec: Any) -> Object:
        """Publish a pool of one slice with devices of these names."""
        devices = [{"name": name} for name in names]
        pool = {"name": f"n1/{RESOURCE}", "generation": 1, "resourceSliceCount": 1}
        made: Object = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
        named = metadata or {"generateName": "slice-"}
        manifest = {"kind": "ResourceSlice", "metadata": named, "spec": {**made, **spec}}
        return self.cluster.create(manifest)

    def device_class(self, name: str = "gopher", **spec: Any) -> Object:
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        made = {"selectors": [selector], **spec}
        return self.cluster.create(
            {"kind": "DeviceClass", "metadata": {"name": name}, "spec": made}
        )

    def claim(self, name: str = "c", **exactly: Any) -> Object:
        request = {"name": "r", "exactly": {"deviceClassName": "gopher", **exactly}}
        return self.claim_of(name, [request])

    def claim_of(self, name: str, requests: Sequence[Object], **devices: Any) -> Object:
        spec = {"devices": {"requests": list(requests), **devices}}
        manifest = {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
        return self.cluster.create(manifest)

    def template(self, requests: Sequence[Object] = (), **metadata: Any) -> Object:
        """Create the template t; without ``requests`` it is for one device."""
        usual = [{"name": "r", "exactly": {"deviceClassName": "gopher"}}]
        spec = {"metadata": metadata, "spec": {"devices": {"requests": requests or usual}}}
        manifest = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": spec}
        return self.cluster.create(manifest)

    def pod(self, name: str = "p", limits: Object | None = None, **spec: Any) -> Object:
        container = {"name": "main", "image": "none", "resources": {"limits": limits or {}}}
        made: Object = {"containers": [container], **spec}
        return self.cluster.create({"kind": "Pod", "metadata": {"name": name}, "spec": made})

    def pod_with(self, claim: str, name: str = "p", **spec: Any) -> Object:
        """Create a pod with a claim that exists."""
        return self.pod(name, resourceClaims=[{"name": "d", "resourceClaimName": claim}], **spec)

    def usual(self, *devices: str, exactly: Object | None = None, **spec: Any) -> None:
        """Create a slice, a class, the claim c for what ``exactly`` says, and the pod p with it."""
        self.slice(*devices, **spec)
        self.device_class()
        self.claim(**(exactly or {}))
        self.pod_with("c")

    def get(self, kind: str, name: str) -> Object:
        """Return an object that is there."""
        found = self.cluster.get(kind, name)
        assert found is not None
        return found

    def status(self, name: str = "p") -> Object:
        status: Object = self.get("Pod", name)["status"]
        return status

    def node_of(self, name: str = "p") -> str:
        return str(self.get("Pod", name)["spec"].get("nodeName", ""))

    def why_not(self, name: str = "p") -> str:
        """Return why the pod is not scheduled."""
        conditions = self.status(name).get("conditions", [{}])
        return str(conditions[0].get("message", ""))

    def allocatable(self, count: int) -> None:
        """Set how many devices the node's plugin has."""
        amounts = {RESOURCE: str(count)}

        def edit(node: Object) -> None:
            for field in ("capacity", "allocatable"):
                node["status"].setdefault(field, {}).update(amounts)

        self.cluster.change("Node", "n1", edit)

    def settle(self) -> None:
        """Let the controllers do what they have to do."""
        self.cluster.settle()

    def settle_until(self, condition: Callable[[], object]) -> None:
        """Let the controllers do what they have to do, and wait for its result."""
        self.settle()
        eventually(condition, "the controllers")

    def allocation(self, claim: str) -> Object:
        """Return what is allocated to a claim."""
        found = self.get("ResourceClaim", claim)
        devices: Object = found.get("status", {}).get("allocation", {}).get("devices", {})
        return devices

    def devices_of(self, claim: str) -> list[str]:
        """Return the devices that are allocated to a claim."""
        return [one["device"] for one in self.allocation(claim).get("results", [])]

    def end(self, name: str = "p", phase: str = "Succeeded") -> None:
        """End a pod, as its kubelet does."""
        self.cluster.change("Pod", name, lambda draft: draft["status"].update(phase=phase))
        self.settle()


class Simulated(Objects):
    """What tests create in a simulated cluster, whose controllers run when the test says so."""

    cluster: SimulatedCluster

    def __init__(self, *, controllers: bool = False, **options: Any) -> None:
        self.time = ManualClock()
        self.time.advance(1_800_000_000)
        given = {"clock": self.time, "waits": Hurried(), **options}
        super().__init__(SimulatedCluster(controllers=controllers, **given))

    def __enter__(self) -> Self:
        self.cluster.start()
        self.cluster.add_node("n1")
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()

    @functools.cached_property
    def api(self) -> ApiServer:
        """A client without an account."""
        return ApiServer(self.cluster.url)
