"""Preparing and unpreparing the claims of pods."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator import (
    Behaviour,
    CallError,
    Container,
    ContainerClaim,
    ContainerStartError,
    KubeletStopped,
    Pod,
    PodClaim,
    PodNotReadyError,
    StubError,
    allocated_claim,
)
from kubelets.equipped import Kubelet, result, sharing


# As upstream's TestPrepareResources and TestGetResources.
def test_a_claim_is_prepared_once_before_the_first_container_starts(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    pod = kubelet.claiming()
    got = kubelet.run(pod).options["main"]
    assert got
    uid = kubelet.claims.claim("default", "p")["metadata"]["uid"]
    assert ((f"x.io/claim={uid}",), {"CLAIM": "p"}) == (got.claim_cdi_devices, got.envs)
    assert 45 == pytest.approx(stub.deadlines["NodePrepareResources"], abs=1)
    assert kubelet.dra.prepared("p")
    assert {pod.uid} == kubelet.dra.users("p")
    assert [("x.io", "pool", "device")] == [
        (name, device.pool, device.name) for name, device in kubelet.dra.devices("p")
    ]
    kubelet.exit_container(pod, "main")
    assert got == kubelet.start_container(pod, "main")
    assert [["p"]] == stub.prepared


# As upstream's TestUnprepareResources.
def test_a_claim_is_unprepared_once_before_the_pod_has_ended(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    phases = []

    def answer(_claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        phases.append((kubelet.pod(pod).phase, set(kubelet.pod(pod).running)))
        return pb.NodeUnprepareResourceResponse()

    stub.on_unprepare = answer
    kubelet.terminate(pod)
    assert kubelet._process
    kubelet._process.workers.end(kubelet.pod(pod))  # as sync(), if it saw the pod before
    assert [("Running", set())] == phases
    assert "Succeeded" == kubelet.pod(pod).phase
    assert (False, frozenset()) == (kubelet.dra.prepared("p"), kubelet.dra.users("p"))


def test_what_fails_is_tried_again_after_a_while(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    stub.failing["NodePrepareResources"] = StubError("not yet")
    uses = [ContainerClaim("c")]
    first = [Container("first", claims=uses)]
    pod = Pod("p", [Container("main", claims=uses)], first, claims=[PodClaim("c", "c")])
    kubelet.give("c", pod)
    outcome = kubelet.run(pod)
    assert outcome
    assert {} == outcome.options
    expected = (
        "Failed to prepare dynamic resources: NodePrepareResources: "
        "rpc error: code = Internal desc = not yet"
    )
    state = kubelet.pod(pod)
    assert expected == outcome.event == state.event
    assert "Pending" == state.phase
    stub.failing.clear()
    kubelet.sync_after(59)
    assert not state.running
    kubelet.sync_after(31)
    assert ({"main"}, {"first", "main"}, "") == (state.running, set(state.started), state.event)
    assert {"CLAIM": "c"} == kubelet.env(pod)


def test_a_teardown_that_fails_keeps_the_pod_and_is_tried_again(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    stub.on_unprepare = lambda _claim: pb.NodeUnprepareResourceResponse(error="busy")
    kubelet.terminate(pod, "Failed")
    expected = (
        "Failed to unprepare dynamic resources: "
        "NodeUnprepareResources failed for ResourceClaim p: busy"
    )
    state = kubelet.pod(pod)
    assert (expected, "Running", "Failed") == (state.event, state.phase, state.ending)
    stub.on_unprepare = lambda _claim: pb.NodeUnprepareResourceResponse()
    kubelet.sync()
    assert "Running" == state.phase
    kubelet.sync_after(15)
    assert ("Failed", "") == (state.phase, state.ending)


def test_a_driver_that_is_gone_keeps_pods_terminating(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    stub.stop()
    kubelet.watch()
    kubelet.terminate(pod)
    kubelet.sync_after(3600)
    state = kubelet.pod(pod)
    expected = "Failed to unprepare dynamic resources: DRA driver x.io is not registered"
    assert (expected, "Running") == (state.event, state.phase)
    kubelet.driver(socket="again.sock")
    kubelet.sync_after(15)
    assert "Succeeded" == state.phase


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "NodePrepareResources skipped 1 ResourceClaims"),
        ({"other": {}}, "NodePrepareResources returned result for unknown claim UID other"),
        ({"": {"error": "no"}}, "NodePrepareResources failed for ResourceClaim p: no"),
    ],
)
def test_each_claim_must_be_in_the_answer_without_an_error(
    kubelet: Kubelet, answers: dict[str, Any], why: str
) -> None:
    stub = kubelet.driver()
    pod = kubelet.claiming()
    uid = kubelet.claims.claim("default", "p")["metadata"]["uid"]
    claims = {key or uid: pb.NodePrepareResourceResponse(**value) for key, value in answers.items()}
    stub.answer_prepare = lambda _given: pb.NodePrepareResourcesResponse(claims=claims)
    assert f"Failed to prepare dynamic resources: {why}" == kubelet.run(pod).event
    with pytest.raises(PodNotReadyError, match="prepare dynamic resources"):
        kubelet.start_container(pod, "main")


def test_a_claim_without_devices_is_prepared(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    stub.on_prepare = lambda _claim: pb.NodePrepareResourceResponse()
    outcome = kubelet.run(kubelet.claims.pod("p", "x.io", "pool", []))
    assert {"main": None} == outcome.options
    assert [] == stub.prepared  # its allocation names no driver
    kubelet.give("q", pod := sharing("two", "q"))
    assert {"main": None} == kubelet.run(pod).options
    assert [["q"]] == stub.prepared


def test_a_driver_that_is_not_registered_leaves_nothing_behind(kubelet: Kubelet) -> None:
    pod = kubelet.claiming()
    expected = "Failed to prepare dynamic resources: DRA driver x.io is not registered"
    assert expected == kubelet.run(pod).event
    assert frozenset() == kubelet.dra.users("p")
    kubelet.terminate(pod)
    assert "Succeeded" == kubelet.pod(pod).phase
    kubelet.sync_after(100)


@pytest.mark.parametrize("what", ["missing", "not allocated", "not reserved", "foreign", "away"])
def test_a_claim_that_is_not_fit_for_the_pod_is_not_prepared(kubelet: Kubelet, what: str) -> None:
    stub = kubelet.driver()
    claim = PodClaim("claim", "c", from_template=True)
    pod = Pod("p", [Container("main", claims=[ContainerClaim("claim")])], claims=[claim])
    made = allocated_claim("c", [result()], pods=[pod], owner=pod, uid="u")
    kubelet.claims.add(made)
    match what:
        case "missing":
            kubelet.claims.remove("c")
            why = 'fetch ResourceClaim c: resourceclaims.resource.k8s.io "c" not found'
        case "not allocated":
            del made["status"]["allocation"]
            why = "ResourceClaim c: not allocated"
        case "not reserved":
            made["status"]["reservedFor"] = []
            why = "pod p (default/p) is not allowed to use ResourceClaim c (u)"
        case "foreign":
            made["metadata"]["ownerReferences"][0]["uid"] = "another"
            why = "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)"
        case _:
            kubelet.claims.failing = "connection refused"
            why = "fetch ResourceClaim c: connection refused"
    assert f"Failed to prepare dynamic resources: {why}" == kubelet.run(pod).event
    assert [] == stub.prepared


def test_a_claim_for_which_no_object_was_made_is_skipped_and_one_not_made_yet_keeps_the_pod(
    kubelet: Kubelet,
) -> None:
    def pod(name: str, claim: str | None) -> Pod:
        containers = [Container("main", claims=[ContainerClaim("c")])]
        return Pod(name, containers, claims=[PodClaim("c", claim, from_template=True)])

    skipping, waiting = pod("skipping", ""), pod("waiting", None)
    assert {"main": None} == kubelet.run(skipping).options
    assert {"main": {}} == kubelet.dra.health(skipping)
    why = 'prepare dynamic resources: pod "default/waiting": ResourceClaim not created yet'
    assert f"Failed to {why}" == kubelet.run(waiting).event
    kubelet.terminate(waiting)
    assert f"Failed to un{why}" == kubelet.pod(waiting).event


# As upstream's TestParallelPrepareUnprepareResources.
def test_pods_that_share_a_claim_prepare_it_once_and_the_last_one_unprepares_it(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.driver()
    one, two = sharing("one", "c"), sharing("two", "c")
    kubelet.give("c", one, two)
    assert kubelet.run(one).options["main"] == kubelet.run(two).options["main"]
    assert [["c"]] == stub.prepared
    kubelet.terminate(one)
    assert [] == stub.unprepared
    assert {two.uid} == kubelet.dra.users("c")
    kubelet.terminate(two)
    assert [["c"]] == stub.unprepared


@pytest.mark.parametrize(
    ("behaviour", "unprepared"), [(Behaviour.v1_36(), [["c"]]), (Behaviour.fixed(), [])]
)
def test_a_pod_that_never_had_a_claim_can_take_it_from_the_one_that_has_it(
    kubelet: Kubelet, unprepared: list[list[str]]
) -> None:
    stub = kubelet.driver()
    user, other = sharing("user", "c"), sharing("other", "c")
    kubelet.give("c", user)
    assert kubelet.run(user).options
    assert "is not allowed to use" in kubelet.run(other).event
    kubelet.terminate(other)
    assert {"main"} == kubelet.pod(user).running
    assert unprepared == stub.unprepared
    kubelet.exit_container(user, "main")
    if unprepared:
        with pytest.raises(ContainerStartError, match="internal error: unable to get claim info"):
            kubelet.start_container(user, "main")
    else:
        assert kubelet.start_container(user, "main")


@pytest.mark.parametrize(
    ("behaviour", "joins"), [(Behaviour.v1_36(), True), (Behaviour.fixed(), False)]
)
def test_a_pod_that_takes_a_claim_while_it_is_unprepared(kubelet: Kubelet, joins: bool) -> None:
    stub = kubelet.driver()
    one, two = sharing("one", "c"), sharing("two", "c")
    kubelet.give("c", one, two)
    assert kubelet.run(one).options
    outcomes = []

    def unprepare(_claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        outcomes.append(kubelet.run(two))
        return pb.NodeUnprepareResourceResponse()

    stub.on_unprepare = unprepare
    kubelet.terminate(one)
    (outcome,) = outcomes
    assert joins is bool(outcome.options)
    assert joins is not ("ResourceClaim c is being unprepared" in outcome.event)
    assert [["c"]] == stub.prepared
    if not joins:
        kubelet.sync_after(100)
        assert [["c"], ["c"]] == stub.prepared


def test_the_claims_of_a_pod_are_prepared_in_one_call_for_each_driver(kubelet: Kubelet) -> None:
    one, two = kubelet.driver("one.io", "one.sock"), kubelet.driver("two.io", "two.sock")
    pod = sharing("p", "both", "second")
    kubelet.give("both", pod, results=[result("one.io"), result("two.io")])
    kubelet.give("second", pod, results=[result("two.io")])
    got = kubelet.run(pod).options["main"]
    assert [["both"]] == one.prepared
    assert [["both", "second"]] == two.prepared
    assert got
    assert 3 == len(got.claim_cdi_devices)
    assert {("one.io", "NodePrepareResources"): 1, ("two.io", "NodePrepareResources"): 1} == dict(
        kubelet.metrics.dra_calls
    )


def test_a_container_gets_the_devices_of_the_requests_that_it_names(kubelet: Kubelet) -> None:
    stub = kubelet.driver()

    def device(claim: pb.Claim, name: str) -> pb.Device:
        stub.write_cdi(name, {"env": [f"{name.upper()}={claim.name}"]})
        found = pb.Device(pool_name="pool", device_name=name, request_names=[name])
        found.cdi_device_ids.append(f"x.io/claim={name}")
        return found

    stub.on_prepare = lambda claim: pb.NodePrepareResourceResponse(
        devices=[device(claim, name) for name in "ab"]
    )
    uses = {"only": ["b"], "all": [""], "twice": ["a", "b"], "none": []}
    containers = [
        Container(name, claims=[ContainerClaim("c", request) for request in requests])
        for name, requests in uses.items()
    ]
    pod = Pod("p", containers, claims=[PodClaim("c", "c")])
    kubelet.give("c", pod, results=[result(request="a"), result(request="b")])
    options = kubelet.run(pod).options
    envs = {name: dict(got.envs) if got else None for name, got in options.items()}
    both = {"A": "c", "B": "c"}
    assert {"only": {"B": "c"}, "all": both, "twice": both, "none": None} == envs


def test_a_claim_made_again_under_its_name_waits_for_the_old_one(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    old = kubelet.claiming()
    kubelet.run(old)
    stub.failing["NodeUnprepareResources"] = StubError("busy")
    kubelet.delete(old)
    kubelet.sync_after(60)
    assert "rpc error: code = Internal desc = busy" in kubelet.dra.problems[-1]
    new = kubelet.claiming()
    assert "old ResourceClaim with same name p and different UID" in kubelet.run(new).event
    stub.failing.clear()
    kubelet.sync_after(90)
    kubelet.sync_after(90)
    assert {"main"} == kubelet.pod(new).running


def test_claims_of_pods_that_end_or_go_while_the_kubelet_is_down_are_released_later(
    kubelet: Kubelet,
) -> None:
    stub, gone = kubelet.prepared()
    ending = kubelet.claiming("ending")
    kubelet.run(ending)
    kubelet.sync()
    kubelet.stop()
    kubelet.delete(gone)
    kubelet.terminate(ending)
    state = kubelet.pod(ending)
    assert ({"main"}, "Running") == (state.running, state.phase)
    kubelet.start()
    kubelet.reconnect()
    kubelet.sync_after(60)
    assert ("Succeeded", [["p"], ["ending"]]) == (state.phase, stub.unprepared)


def test_a_claim_that_is_unprepared_meanwhile_is_an_internal_error(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    pod = kubelet.claiming()
    kubelet.admit(pod)

    def answer(claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        kubelet.terminate(pod)
        return stub.one_device(claim)

    stub.on_prepare = answer
    with pytest.raises(PodNotReadyError, match="internal error: unable to get claim info"):
        kubelet.start_container(pod, "main")


def test_a_driver_can_be_called_directly(kubelet: Kubelet) -> None:
    kubelet.driver()
    claim = allocated_claim("c", [result()])
    uid = claim["metadata"]["uid"]
    answer = kubelet.dra.prepare("x.io", claim)
    assert ["device"] == [device.device_name for device in answer[uid].devices]
    assert {uid} == kubelet.dra.unprepare("x.io", claim).keys()
    kubelet._live().dra.drivers.get("x.io").close()
    with pytest.raises(CallError, match=r"Canceled desc = grpc: the client connection is closing"):
        kubelet.dra.prepare("x.io", claim)
    kubelet.stop()
    with pytest.raises(KubeletStopped, match="the kubelet is not running"):
        kubelet.dra.prepare("x.io", claim)


def test_a_pod_is_prepared_once_though_two_threads_start_it(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    pod = kubelet.claiming()
    assert kubelet.launch(pod)
    stub.hold("NodePrepareResources")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(kubelet.start_container, pod, "main")
        stub.wait(lambda: "NodePrepareResources" in stub.calls)
        second = pool.submit(kubelet.start_container, pod, "main")
        kubelet.sync()  # does not wait for a pod that another thread works on
        stub.release()
        assert first.result() == second.result()
    assert [["p"]] == stub.prepared
    assert kubelet.dra.prepared("p")
    assert [] == kubelet.pod(pod).waiting
