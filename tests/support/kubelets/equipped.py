"""A simulated kubelet that makes the plugins and drivers of a test."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from typing_extensions import override

from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2
from deviceplugin.proto.v1beta1 import HEALTHY, VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import (
    Container,
    ContainerClaim,
    ManualClock,
    Outcome,
    Pod,
    PodClaim,
    SimulatedKubelet,
    StubDriver,
    StubPlugin,
    allocated_claim,
)
from patience import eventually

R = "x.io/dev"
PRE_START = pb.DevicePluginOptions(pre_start_required=True)
PREFERS = pb.DevicePluginOptions(get_preferred_allocation_available=True)


class Kubelet(SimulatedKubelet):
    """Its plugins and drivers end with it; its clock is the test's."""

    clock: ManualClock

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, clock=ManualClock(), **options)
        self._made = ExitStack()

    @override
    def __exit__(self, *_: object) -> None:
        self._made.close()
        super().__exit__()

    def stub(
        self, resource: str = R, devices: Any = "ab", directory: Path | None = None, **options: Any
    ) -> StubPlugin:
        """Return a plugin that serves and is not registered."""
        plugin = StubPlugin(directory or self.plugin_dir, resource, devices, **options)
        plugin.start()
        self._made.callback(plugin.stop)
        return plugin

    def plugin(self, resource: str = R, devices: Any = "ab", **options: Any) -> StubPlugin:
        """Return a plugin that is registered and whose first list has arrived."""
        plugin = self.stub(resource, devices, **options)
        self.after_a_list(resource, plugin.register)
        return plugin

    def watched(
        self, name: str = "stub.sock", resource: str = R, devices: Any = "ab"
    ) -> StubPlugin:
        """Return a plugin in plugins_registry, which the kubelet has not looked at yet."""
        return self.stub(resource, devices, self.registry_dir, name=name)

    def unnoticed(
        self, name: str = "x.io", socket: str = "driver-reg.sock", **options: Any
    ) -> StubDriver:
        """Return a DRA driver that the kubelet has not looked at yet."""
        cdi_dir = self.cdi_dirs[0]
        driver = StubDriver(self.registry_dir, name, socket=socket, cdi_dir=cdi_dir, **options)
        driver.start()
        self._made.callback(driver.stop)
        return driver

    def driver(
        self, name: str = "x.io", socket: str = "driver-reg.sock", **options: Any
    ) -> StubDriver:
        """Return a DRA driver that is registered and connected."""
        driver = self.unnoticed(name, socket, **options)

        def is_connected() -> bool:
            self.watch()
            return str(driver.socket) in self.dra.connected.get(name, ())

        eventually(is_connected, "the driver to be registered")
        return driver

    def admitted(self, name: str = "p", /, **limits: Mapping[str, int]) -> Pod:
        """Return a pod that is admitted; by default for one device."""
        pod = Pod.of(name, **(limits or {"main": {R: 1}}))
        assert self.admit(pod)
        return pod

    def refused(self, name: str = "p", /, **limits: Mapping[str, int]) -> str:
        """Return why a pod is rejected by an error; by default one for one device."""
        return reason(self.admit(Pod.of(name, **(limits or {"main": {R: 1}}))))

    def admitting(self, pod: Pod) -> Future[Outcome]:
        """Begin to admit a pod in a thread of its own."""
        pool = ThreadPoolExecutor(1)
        self._made.callback(pool.shutdown, wait=False)
        return pool.submit(self.admit, pod)

    def started(self, name: str = "p", /, **limits: Mapping[str, int]) -> Pod:
        """Return a pod that is admitted, and whose containers are started."""
        pod = Pod.of(name, **(limits or {"main": {R: 1}}))
        assert self.run(pod)
        return pod

    def claiming(self, name: str = "p") -> Pod:
        """Return a pod for a device of a driver, which is not admitted yet."""
        return self.claims.pod(name, "x.io", "pool", ["device"])

    def prepared(self) -> tuple[StubDriver, Pod]:
        """Return a driver, and a running pod that has a device of it."""
        driver, pod = self.driver(), self.claiming()
        assert self.run(pod).options
        return driver, pod

    def give(self, name: str, *pods: Pod, **options: Any) -> dict[str, Any]:
        """Add a claim that is reserved for ``pods``; by default for one device."""
        claim = allocated_claim(name, options.pop("results", [result()]), pods=pods, **options)
        self.claims.add(claim)
        return claim

    def env(self, pod: Pod) -> dict[str, str]:
        """Return the variables that the pod's container got at its last start."""
        options = self.pod(pod).started["main"]
        assert options
        return dict(options.envs)

    def reconnect(self) -> None:
        """Let the drivers register again."""
        self.watch()
        self.wait(lambda: self.dra.connected, what="a driver")

    def lose(self, plugin: StubPlugin) -> None:
        """Stop a plugin; all its devices are unhealthy then."""
        plugin.stop()
        self.wait_for(plugin.resource, (), self.devices(plugin.resource))

    def expire(self) -> None:
        """Let the grace period of lost plugins pass."""
        self.clock.advance(301)
        self.tick()

    def sync_after(self, seconds: float) -> None:
        """Do what is due after so many seconds."""
        self.clock.advance(seconds)
        self.sync()

    def relist(self, plugin: StubPlugin, devices: Any) -> None:
        """Have a plugin send a list, which replaces all that there was."""
        self.after_a_list(plugin.resource, lambda: plugin.update(devices))
        listed = {one.ID: one.health for one in plugin._list}
        assert listed == self.devices(plugin.resource)
        healthy = {id_ for id_, health in listed.items() if health == HEALTHY}
        self.wait_for(plugin.resource, healthy, listed.keys() - healthy, timeout=0)

    @contextmanager
    def registering(self, plugin: StubPlugin) -> "Iterator[grpc.Future[object]]":
        """Begin a call of Register, which ends with the block at the latest."""
        request = pb.RegisterRequest(
            version=VERSION, endpoint=plugin.socket.name, resource_name=plugin.resource
        )
        with rpc.connect(self.kubelet_socket) as channel:
            service = pb.DESCRIPTOR.services_by_name["Registration"]
            call = rpc.calls(channel, service)["Register"].future(request)
            yield call  # which would end if nobody kept it

    def after_a_list(self, resource: str, act: Callable[[], object]) -> None:
        """Do something, and wait for the list that comes of it."""
        received = self.lists_received(resource)
        act()
        self.wait(lambda: self.lists_received(resource) > received, what="a list")

    @functools.cached_property
    def agent(self) -> Mapping[str, Callable[..., Any]]:
        """The calls of a client of the pod resources API."""
        channel = self._made.enter_context(rpc.connect(self.pod_resources_socket))
        return rpc.calls(
            channel, podresources_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"]
        )


def result(
    driver: str = "x.io", device: str = "device", request: str = "request"
) -> dict[str, str]:
    """Return a device in the allocation of a claim."""
    return {"request": request, "driver": driver, "pool": "pool", "device": device}


def sharing(name: str, *claims: str) -> Pod:
    """Return a pod with a container that uses these claims."""
    uses = [ContainerClaim(claim) for claim in claims]
    pod_claims = [PodClaim(claim, claim) for claim in claims]
    return Pod(name, [Container("main", claims=uses)], claims=pod_claims)


class HangingPlugin:
    """What a process runs whose plugin makes a file when Allocate comes, and never answers it."""

    def main(self) -> None:
        """Run until a signal, with the plugin directory and the file as arguments."""
        plugin = StubPlugin(Path(sys.argv[2]), R, "a")
        plugin.hold("Allocate")
        with plugin:
            plugin.wait(lambda: "Allocate" in plugin.calls)
            Path(sys.argv[3]).touch()
            plugin.wait(lambda: False)


def refusal(plugin: StubPlugin, **request: Any) -> str:
    """Return why the kubelet refuses a plugin."""
    with pytest.raises(grpc.RpcError) as raised:
        plugin.register(**request)
    return why(raised.value)


def why(error: BaseException | None) -> str:
    """Return what a Go function of the kubelet said."""
    call = cast("grpc.Call", error)
    assert grpc.StatusCode.UNKNOWN is call.code()
    return str(call.details())


def reason(outcome: Outcome) -> str:
    """Return by which error a pod was rejected, without what all such messages have."""
    assert "UnexpectedAdmissionError" == outcome.reason
    assert f"Pod was rejected: {outcome.event}" == outcome.message
    prefix, suffix = "Allocate failed due to ", ", which is unexpected"
    assert outcome.event.startswith(prefix)
    assert outcome.event.endswith(suffix)
    return outcome.event[len(prefix) : -len(suffix)]


def ids(outcome: Outcome, container: str = "main", resource: str = R) -> frozenset[str]:
    """Return the devices that a container got."""
    assert outcome, outcome.message
    return outcome.devices[container][resource]


def during_allocate(plugin: StubPlugin, act: Callable[[], object]) -> None:
    """Have something happen before each answer to Allocate."""
    answer = plugin.on_allocate

    def allocate(given: list[str]) -> pb.AllocateResponse:
        act()
        return answer(given)

    plugin.on_allocate = allocate


def preferred(*lists: Iterable[str]) -> pb.PreferredAllocationResponse:
    """Return an answer to GetPreferredAllocation."""
    responses = [pb.ContainerPreferredAllocationResponse(deviceIDs=each) for each in lists]
    return pb.PreferredAllocationResponse(container_responses=responses)


def near(id_: str, *nodes: int, health: str = "Healthy") -> pb.Device:
    """Return a device near these NUMA nodes; without any, it has a topology of none."""
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes])
    return pb.Device(ID=id_, health=health, topology=topology)


def allocated(**given: Any) -> pb.AllocateResponse:
    """Return an answer to Allocate for one container."""
    return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(**given)])
