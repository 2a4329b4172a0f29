"""Admission of pods: which devices they get, and what is said when they get none."""

from pathlib import Path

import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import (
    Behaviour,
    Container,
    KubeletStopped,
    Pod,
    StubError,
    StubPlugin,
)
from kubelets.equipped import PREFERS, Kubelet, R, during_allocate, ids, preferred, reason

CLOSING = "grpc: the client connection is closing"


# As upstream's TestPodContainerDeviceAllocation, and end-to-end test: Can schedule a pod that
# requires a device.
def test_a_pod_gets_as_many_devices_as_it_asks_for(kubelet: Kubelet) -> None:
    dev, net = (
        kubelet.plugin(devices=["a", "b", "c"], name="1"),
        kubelet.plugin("x.io/net", ["n"], name="2"),
    )
    outcome = kubelet.admit(Pod.of("p", main={R: 2, "x.io/net": 1}))
    assert 2 == len(ids(outcome))
    assert {"n"} == ids(outcome, resource="x.io/net")
    assert [sorted(ids(outcome))] == dev.allocated
    assert [["n"]] == net.allocated
    assert [] == dev.preferred
    assert dev.deadlines["Allocate"] > 1e6
    (duration,) = kubelet.metrics.device_plugin_alloc_duration_seconds[R]
    assert 0 < duration < 5
    kubelet.admitted("zero", main={R: 0})
    assert 1 == len(dev.allocated)
    expected = "requested number of devices unavailable for x.io/dev. Requested: 2, Available: 1"
    assert expected == kubelet.refused("q", main={R: 2})
    assert ids(kubelet.admit(Pod.of("r", main={R: 1}))).isdisjoint(ids(outcome))


# As upstream's TestPodContainerDeviceToAllocate.
def test_a_rejected_pod_has_failed_for_good(kubelet: Kubelet) -> None:
    kubelet.plugin(devices={"a": "Unhealthy"})
    pod = Pod.of("p", main={R: 1})
    outcome = kubelet.admit(pod)
    state = kubelet.pod(pod)
    expected = "no healthy devices present; cannot allocate unhealthy devices x.io/dev"
    assert expected == reason(outcome) == kubelet.refused("zero", main={R: 0})
    assert ("Failed", outcome.reason, outcome.message) == (state.phase, state.reason, state.message)
    assert {"UnexpectedAdmissionError": 2} == kubelet.metrics.admission_rejections_total
    assert 0 == kubelet.metrics.topology_manager_admission_errors_total
    with pytest.raises(ValueError, match="has ended"):
        kubelet.admit(pod)


@pytest.mark.parametrize("count", [1, 3])
def test_an_expired_resource_that_somebody_holds_or_asked_too_much_of_is_unregistered(
    kubelet: Kubelet, count: int
) -> None:
    stub = kubelet.plugin()
    assert (1 == count) == bool(kubelet.admit(Pod.of("holder", main={R: count})))
    kubelet.lose(stub)
    kubelet.expire()
    expected = "cannot allocate unregistered device x.io/dev"
    assert expected == kubelet.refused()


def test_an_expired_resource_that_nobody_holds_is_out_of_stock(kubelet: Kubelet) -> None:
    kubelet.lose(kubelet.plugin())
    kubelet.tick()
    kubelet.expire()
    outcome = kubelet.admit(Pod.of("p", main={R: 1, "x.io/never": 1}))
    why = "Node didn't have enough resource: x.io/dev, requested: 1, used: 0, capacity: 0"
    assert ("OutOfx.io/dev", f"Pod was rejected: {why}") == (outcome.reason, outcome.message)
    outcome = kubelet.run(Pod.of("q", main={"x.io/never": 1}))  # what the node never had
    assert {"main": {}} == outcome.devices


def test_a_plugin_that_stops_during_allocate_rejects_the_pod_and_no_device_is_lost(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=["a"])
    stub.hold("Allocate")
    admitting = kubelet.admitting(Pod.of("p", main={R: 1}))
    stub.wait(lambda: stub.allocated)
    stub.stop()
    # The server cancels each call. If ListAndWatch ends first, the kubelet closes the connection.
    endings = ("Unavailable desc = Cancelling all calls", f"Canceled desc = {CLOSING}")
    assert reason(admitting.result()) in {f"rpc error: code = {ending}" for ending in endings}
    assert set() == kubelet.in_use(R)


def test_a_hanging_allocate_stalls_the_whole_node(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(name="1")
    kubelet.plugin("x.io/other", ["o"], name="2")
    stub.hold("Allocate")
    first = kubelet.admitting(Pod.of("first", main={R: 1}))
    stub.wait(lambda: stub.allocated)
    second = kubelet.admitting(Pod.of("second", main={"x.io/other": 1}))
    assert ("admitting pod default/first", []) == (kubelet.busy_with, kubelet.healthz())
    kubelet.clock.advance(301)
    assert ["syncloop"] == kubelet.healthz()
    stub.release()
    assert first.result()
    assert second.result()
    assert ("", []) == (kubelet.busy_with, kubelet.healthz())


def test_a_kubelet_that_stops_during_allocate_decides_nothing(kubelet: Kubelet) -> None:
    stub = kubelet.plugin()
    stub.hold("Allocate")
    pod = Pod.of("p", main={R: 1})
    admitting = kubelet.admitting(pod)
    stub.wait(lambda: stub.allocated)
    kubelet.stop()
    assert isinstance(admitting.exception(), KubeletStopped)
    assert "Pending" == kubelet.pod(pod).phase
    with pytest.raises(KubeletStopped):
        kubelet.admit(Pod.of("q", main={}))


def test_what_was_allocated_before_a_failure_or_an_end_stays_until_the_next_allocation(
    kubelet: Kubelet,
) -> None:
    kubelet.plugin(devices=["a"])
    pod = Pod("p", [Container("one", {R: 1}), Container("two", {R: 1})])
    assert not kubelet.admit(pod)
    assert {"one": {R: {"a"}}, "two": {}} == kubelet.held(pod)
    kubelet.terminate(kubelet.admitted("q"))
    assert {"a"} == kubelet.in_use(R)
    kubelet.admitted("r")


# As upstream's TestInitContainerDeviceAllocation.
def test_devices_of_init_containers_are_used_again(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a", "b", "c", "d", "e"])
    pod = Pod(
        "p",
        [Container("app1", {R: 1}), Container("app2", {R: 2})],
        [Container("init1", {R: 1}), Container("init2", {R: 3})],
    )
    outcome = kubelet.admit(pod)
    assert ids(outcome, "init1") < ids(outcome, "init2")
    assert ids(outcome, "app1") | ids(outcome, "app2") == ids(outcome, "init2")
    assert ids(outcome, "app1").isdisjoint(ids(outcome, "app2"))
    assert 4 == len(stub.allocated)
    assert 3 == len(kubelet.in_use(R))


# As upstream's TestRestartableInitContainerDeviceAllocation, and end-to-end test: Can schedule a
# pod with a restartable init container.
def test_sidecars_keep_their_devices_and_may_take_those_of_init_containers(
    kubelet: Kubelet,
) -> None:
    kubelet.plugin(devices=["a", "b", "c", "d"])
    sidecar = Container("sidecar", {R: 1}, restarts_always=True)
    pod = Pod("p", [Container("app", {R: 2})], [Container("init", {R: 1}), sidecar])
    outcome = kubelet.admit(pod)
    assert ids(outcome, "init") == ids(outcome, "sidecar")
    assert ids(outcome, "app").isdisjoint(ids(outcome, "sidecar"))
    assert 3 == pod.request(R) == len(kubelet.in_use(R))


def test_another_pod_does_not_get_what_may_be_used_again(kubelet: Kubelet) -> None:
    kubelet.plugin()
    assert kubelet.admit(Pod("p", [Container("app", {})], [Container("init", {R: 1})]))
    kubelet.admitted("q")
    assert not kubelet.admit(Pod.of("r", main={R: 1}))


# As upstream's TestGetPodDeviceRequest.
@pytest.mark.parametrize(
    ("init", "sidecars", "apps", "expected"),
    [([], [], [1, 2], 3), ([5], [], [1, 2], 5), ([1, 2], [], [3], 3), ([2], [1], [1], 3)],
)
def test_a_pod_needs_what_runs_at_the_same_time(
    init: list[int], sidecars: list[int], apps: list[int], expected: int
) -> None:
    before = [
        Container(f"s{n}", {R: wanted}, restarts_always=True) for n, wanted in enumerate(sidecars)
    ]
    before += [Container(f"i{n}", {R: wanted}) for n, wanted in enumerate(init)]
    after = [Container(f"a{n}", {R: wanted}) for n, wanted in enumerate(apps)]
    assert expected == Pod("p", after, before).request(R)


# As upstream's TestAdmitPodWithDRAResources.
def test_what_is_claimed_is_not_the_plugins_nor_need_be_on_the_node_but_counts_as_used(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=["a", "b", "c"])
    kubelet.tick()
    claiming = Container("one", {R: 2}, claimed=frozenset({R}))
    assert kubelet.admit(Pod("p", [claiming, Container("two", {R: 1})]))
    assert 1 == len(stub.allocated)
    assert kubelet.admit(Pod("q", [claiming]))
    assert "OutOfx.io/dev" == kubelet.admit(Pod.of("r", main={R: 1})).reason


# As upstream's TestUpdatePluginResources.
def test_the_node_is_taken_to_have_at_least_what_is_allocated(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    kubelet.tick()
    kubelet.relist(stub, ["a", "b"])
    kubelet.admitted()
    assert {R: 1} == kubelet.node.allocatable
    kubelet.admitted("q")


def test_a_resource_that_is_younger_than_the_node_status_has_what_is_allocated(
    kubelet: Kubelet,
) -> None:
    kubelet.admitted("without-devices")
    kubelet.plugin(devices=["a", "b"])
    outcome = kubelet.admit(Pod.of("p", main={R: 2}))
    assert {} == kubelet.node.allocatable
    assert "OutOfx.io/dev" == outcome.reason
    assert outcome.event == (
        "Node didn't have enough resource: x.io/dev, requested: 2, used: 1, capacity: 2"
    )


def test_of_several_resources_that_are_out_any_is_named(kubelet: Kubelet) -> None:
    kubelet.node.allocatable.update({R: 0, "x.io/net": 0})
    pods = [Pod.of(f"p{number}", main={R: 1, "x.io/net": 1}) for number in range(40)]
    reasons = {kubelet.admit(pod).reason for pod in pods}
    assert {"OutOfx.io/dev", "OutOfx.io/net"} == reasons


def test_a_request_of_nothing_fits_a_node_that_has_less_than_is_used(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a", "b"])
    kubelet.admitted("holder", main={R: 2})
    kubelet.relist(stub, {"a": "Healthy", "b": "Unhealthy"})
    kubelet.tick()
    assert {R: 1} == kubelet.node.allocatable
    outcome = kubelet.admit(Pod.of("p", main={R: 0}))
    assert outcome, outcome.message


def test_a_pod_that_ends_during_an_admission_still_counts_in_it(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    kubelet.tick()
    kubelet.relist(stub, ["a", "b"])
    ending = kubelet.admitted("ending")
    during_allocate(stub, lambda: kubelet.terminate(ending))
    outcome = kubelet.admit(Pod("p", [Container("one", {R: 1}), Container("two", {R: 1})]))
    assert "OutOfx.io/dev" == outcome.reason


def test_a_resize_to_another_number_of_devices_is_refused(kubelet: Kubelet) -> None:
    kubelet.plugin()
    pod = kubelet.admitted()
    assert kubelet.resize(pod)
    expected = (
        'pod "default/p" container "main" changed request for resource "x.io/dev" from 1 to 2'
    )
    assert expected == reason(kubelet.resize(Pod.of("p", main={R: 2})))


def test_an_endpoint_that_vanishes_during_an_admission_is_unknown(kubelet: Kubelet) -> None:
    during_allocate(kubelet.plugin(), lambda: kubelet._live().manager.endpoints.pop(R))
    outcome = kubelet.admit(Pod("p", [Container("app", {R: 1})], [Container("init", {R: 1})]))
    assert "unknown Device Plugin x.io/dev" == reason(outcome)


def test_the_seed_decides(root: Path) -> None:
    def run(directory: Path) -> list[list[str]]:
        with (
            Kubelet(directory, seed=7) as kubelet,
            StubPlugin(kubelet.plugin_dir, R, [f"d{n}" for n in range(50)]) as stub,
        ):
            kubelet.wait(lambda: kubelet.capacity(R))
            for number in range(5):
                kubelet.admitted(f"p{number}", main={R: 3})
            return stub.allocated

    assert run(root / "1") == run(root / "2")


def test_a_pod_needs_no_uid_of_its_own() -> None:
    assert ("default/p", "u") == (Pod("p").uid, Pod("p", uid="u").uid)


# Preferred allocation.


# As upstream's TestGetPreferredAllocationParameters.
def test_the_plugin_is_asked_for_its_preference_unless_all_is_used_again(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=["a", "b", "c"], options=PREFERS)
    assert {"a", "b"} == ids(kubelet.admit(Pod.of("p", main={R: 2})))
    (request,) = stub.preferred
    assert {"a", "b", "c"} == set(request.available_deviceIDs)
    assert [] == request.must_include_deviceIDs
    assert 2 == request.allocation_size
    assert stub.deadlines["GetPreferredAllocation"] > 1e6
    assert kubelet.admit(Pod("q", [Container("app", {R: 1})], [Container("init", {R: 1})]))
    assert 2 == len(stub.preferred)  # for the init container, though it has no choice


def test_devices_to_be_used_again_must_be_included(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a", "b", "c"], options=PREFERS)
    stub.on_prefer = lambda request: preferred(["b", *request.available_deviceIDs])
    outcome = kubelet.admit(Pod("p", [Container("app", {R: 2})], [Container("init", {R: 1})]))
    _, request = stub.preferred
    assert list(ids(outcome, "init")) == request.must_include_deviceIDs
    assert {"a", "b", "c"} == set(request.available_deviceIDs)
    assert 2 == request.allocation_size
    assert ids(outcome, "init") < ids(outcome, "app")


# As upstream's TestDevicesToAllocateConflictWithUpdateAllocatedDevices.
def test_a_collection_during_a_preference_does_no_harm(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(options=PREFERS)
    kubelet.tick()
    finished = kubelet.admitted("finished")

    def collect(_request: object) -> pb.PreferredAllocationResponse:
        kubelet.terminate(finished)
        kubelet._live().manager.collect()
        return preferred("b")

    stub.on_prefer = collect
    kubelet.admitted()


# As upstream's TestGetPreferredAllocation.
@pytest.mark.parametrize(
    ("answer", "certain", "possible"),
    [
        (preferred("cd"), "cd", "cd"),
        (preferred("d"), "d", "abcd"),
        (preferred("xdd"), "d", "abcd"),
        (preferred("ab", "cd"), "ab", "ab"),
        (preferred("bcd"), "", "bcd"),
        (preferred(""), "", "abcd"),
        (preferred(), "", "abcd"),
    ],
)
def test_a_preference_is_followed_as_far_as_it_goes(
    kubelet: Kubelet, answer: pb.PreferredAllocationResponse, certain: str, possible: str
) -> None:
    stub = kubelet.plugin(devices=["a", "b", "c", "d"], options=PREFERS)
    stub.on_prefer = lambda _request: answer
    got = ids(kubelet.admit(Pod.of("p", main={R: 2})))
    assert 2 == len(got)
    assert set(certain) <= got <= set(possible)


def test_a_failing_preference_rejects_the_pod(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(options=PREFERS)
    stub.failing["GetPreferredAllocation"] = StubError("oops")
    expected = (
        "device plugin GetPreferredAllocation rpc failed with err: "
        "rpc error: code = Internal desc = oops"
    )
    assert expected == kubelet.refused()


# What the kubelet loses.


@pytest.mark.parametrize(("behaviour", "leaked"), [(Behaviour.v1_36(), 1), (Behaviour.fixed(), 0)])
def test_an_answer_for_no_container_leaks_the_devices_until_an_allocate_fails_properly(
    kubelet: Kubelet, leaked: int
) -> None:
    stub = kubelet.plugin()
    answering, stub.on_allocate = stub.on_allocate, lambda _ids: pb.AllocateResponse()
    expected = "no containers return in allocation response "
    assert expected == kubelet.refused()
    assert leaked == len(kubelet.in_use(R))
    stub.on_allocate = answering
    two = Pod.of("two", main={R: 2})
    assert bool(leaked) != bool(kubelet.admit(two))
    kubelet.terminate(two)
    stub.failing["Allocate"] = StubError("no")
    assert not kubelet.admit(Pod.of("q", main={R: 1}))
    assert set() == kubelet.in_use(R)
