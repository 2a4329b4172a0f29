"""What the kubelets of earlier releases do differently, each on both sides of the change."""

import os
from contextlib import nullcontext
from typing import Any, cast

import grpc
import pytest

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as plugin_pb
from deviceplugin_testing.simulator import (
    COMPARED,
    NEWEST,
    RELEASES,
    Behaviour,
    Container,
    KubeletConfig,
    KubeletCrashed,
    Pod,
    StubError,
)
from deviceplugin_testing.simulator._host.release import Release
from kubelets.equipped import Kubelet, R, allocated, during_allocate, near, refusal

SIDECAR = Pod("p", [Container("main")], [Container("side", {R: 1}, restarts_always=True)])


def releases(*names: str, **config: Any) -> pytest.MarkDecorator:
    """Run a test on these releases; the name of each is in ``kubelet``."""
    configs = [KubeletConfig(version=name, watch_interval=None, **config) for name in names]
    return pytest.mark.parametrize("config", configs, ids=names)


@pytest.fixture
def behaviour(config: KubeletConfig) -> Behaviour:
    return Behaviour.of(config.release)


def get(kubelet: Kubelet, pod: str) -> Any:
    """Return the devices of ``pod``, or what is wrong with asking for it."""
    request = pb.GetPodResourcesRequest(pod_name=pod, pod_namespace="default")
    try:
        (container,) = kubelet.agent["Get"](request).pod_resources.containers
    except grpc.RpcError as error:
        call = cast("grpc.Call", error)
        return call.code(), call.details()
    return [id_ for each in container.devices for id_ in each.device_ids]


def listed(kubelet: Kubelet) -> dict[str, list[str]]:
    """Return pod to containers."""
    answer = kubelet.agent["List"](pb.ListPodResourcesRequest())
    return {pod.name: [each.name for each in pod.containers] for pod in answer.pod_resources}


# Versions.


def test_the_default_is_the_release_that_is_compared_and_does_all_that_is_known() -> None:
    assert (COMPARED, NEWEST) == (KubeletConfig().version, RELEASES[-1])
    assert Behaviour.v1_36() == Behaviour.of(Release.of(COMPARED))


def test_1_37_has_fixed_some_defects() -> None:
    was, now = Behaviour.v1_36(), Behaviour.of(Release.of("1.37"))
    assert {
        "stale_stream_disconnects_successor",
        "failed_registration_orphans",
        "unprepare_ignores_users",
        "prepare_joins_unprepare",
    } == {name for name in was.__slots__ if getattr(was, name) != getattr(now, name)}


@pytest.mark.parametrize("version", ["1.25", "1.38", "1.9", "1.36.2", "28", ""])
def test_a_release_that_is_not_known_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=r"is not a known kubelet release: use one of 1\.26, "):
        KubeletConfig(version=version)


# Pod resources.


@releases("1.26", "1.27", "1.33", "1.34")
def test_a_pod_can_be_asked_for_from_1_34_and_from_1_27_that_is_disabled(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    kubelet.plugin(devices=["a"])
    kubelet.admitted()
    unknown = "unknown method Get for service v1.PodResourcesLister"
    disabled = grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled"
    answers = {"1.26": (grpc.StatusCode.UNIMPLEMENTED, unknown), "1.34": ["a"]}
    assert answers.get(config.version, disabled) == get(kubelet, "p")
    requests = kubelet.metrics.pod_resources_endpoint_requests
    assert (0 if config.version == "1.26" else 1) == requests.get("get", 0)
    failed = config.version in {"1.27", "1.33"}
    assert ({"get": 1} if failed else {}) == kubelet.metrics.pod_resources_endpoint_errors


@releases("1.33", "1.34")
def test_before_1_34_pods_that_have_ended_are_listed_without_devices(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    kubelet.plugin(devices=["a"])
    kubelet.terminate(kubelet.admitted())
    answer = kubelet.agent["List"](pb.ListPodResourcesRequest())
    found = [[*one.devices] for pod in answer.pod_resources for one in pod.containers]
    assert ([[]] if config.version == "1.33" else []) == found


@releases("1.29", "1.30")
def test_before_1_30_sidecars_are_not_listed(kubelet: Kubelet, config: KubeletConfig) -> None:
    kubelet.plugin(devices=["a"])
    assert kubelet.admit(SIDECAR)
    expected = ["main"] if config.version == "1.29" else ["side", "main"]
    assert {"p": expected} == listed(kubelet)


@releases("1.26")
def test_before_1_27_there_is_no_rate_limit(kubelet: Kubelet) -> None:
    assert [{}] * 200 == [listed(kubelet) for _ in range(200)]


# Admission.


@releases("1.28")
def test_in_1_28_a_pod_with_a_sidecar_is_rejected_after_its_allocate(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    outcome = kubelet.admit(SIDECAR)
    assert "InitContainerRestartPolicyForbidden" == outcome.reason
    assert 'Init container "side" may not have a non-default restartPolicy' == outcome.event
    assert [["a"]] == stub.allocated


@releases("1.27")
def test_before_1_28_nobody_knows_of_sidecars(kubelet: Kubelet) -> None:
    with pytest.raises(ValueError, match=r"default/p: Kubernetes 1\.27 has no sidecars"):
        kubelet.admit(SIDECAR)


@releases("1.35", "1.36")
def test_before_1_36_what_is_claimed_is_the_device_plugins(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    stub = kubelet.plugin(devices=["a"])
    kubelet.tick()
    pod = Pod("p", [Container("main", {R: 1}, claimed=frozenset({R}))])
    assert kubelet.admit(pod)
    assert ([["a"]] if config.version == "1.35" else []) == stub.allocated


@releases("1.35", "1.36", topology_policy="restricted", numa_nodes=(0, 1))
def test_before_1_36_hints_are_for_all_nodes(kubelet: Kubelet, config: KubeletConfig) -> None:
    kubelet.plugin(devices=[near("a", 0), near("b", 0)])
    hints = kubelet._live().admission._hints
    pod = Pod.of("p", main={R: 1})
    found = hints.for_container(pod, pod.containers[0], {})[R]
    expected = [(0b01, True), (0b11, False)] if config.version == "1.35" else [(0b01, True)]
    assert found is not None
    assert expected == [(hint.nodes, hint.preferred) for hint in found]


@releases("1.33", "1.34")
def test_before_1_34_a_device_that_disappears_during_allocate_is_harmless(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    stub = kubelet.plugin(devices=["a"])
    during_allocate(stub, lambda: kubelet.relist(stub, []))
    crashes = pytest.raises(KubeletCrashed) if config.version == "1.34" else nullcontext()
    with crashes:
        kubelet.admitted()


@releases("1.35", "1.36")
def test_before_1_36_a_pods_status_has_no_health_of_devices(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    stub = kubelet.plugin(devices=["a"])
    pod = kubelet.admitted()
    kubelet.relist(stub, {"a": "Unhealthy"})
    shown = config.version == "1.36"
    assert ({"main": {R: {"a": "Unhealthy"}}} if shown else {}) == kubelet.device_health(pod)
    assert ([frozenset({"default/p"})] if shown else []) == kubelet.take_pokes()


# The answer to Allocate.


@releases("1.28", "1.29", "1.31", "1.32")
def test_cdi_names_are_passed_from_1_29_and_as_an_annotation_until_1_31(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    names = [plugin_pb.CDIDevice(name=f"x.io/dev={each}") for each in ("b", "a")]
    kubelet.plugin(devices=["a", "b"]).on_allocate = lambda _: allocated(cdi_devices=names)
    long = "n" * (63 - len("devicemanager_default_p-") + 1)  # one too many for an annotation
    found = kubelet.run(Pod.of("p", **{"main": {R: 1}, long: {R: 1}})).options
    short, without = found["main"], found[long]
    assert short is not None
    assert without is not None
    passed = ("x.io/dev=b", "x.io/dev=a") if config.version != "1.28" else ()
    assert passed == short.cdi_devices == without.cdi_devices
    annotated = {"cdi.k8s.io/devicemanager_default_p-main": "x.io/dev=a,x.io/dev=b"}
    expected = annotated if config.version in {"1.29", "1.31"} else {}
    assert (expected, {}) == (short.annotations, without.annotations)


# Registration.


@releases("1.34")
def test_before_1_35_a_register_that_was_given_up_goes_on(kubelet: Kubelet) -> None:
    late = kubelet.stub()
    late.hold("GetDevicePluginOptions")

    with kubelet.registering(late) as call:
        late.wait(lambda: late.calls)
        call.cancel()
    assert set() == kubelet.healthy(R)
    late.release()
    kubelet.wait_for(R, {"a", "b"})
    assert late.deadlines["GetDevicePluginOptions"] > 1000


@releases("1.35", "1.36")
def test_before_1_36_the_watcher_does_not_try_a_refused_plugin_again(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    refused = kubelet.watched()
    refused.failing["GetDevicePluginOptions"] = StubError("not yet")
    kubelet.watch()
    assert "not yet" in refused.statuses[0].error
    refused.failing.clear()
    kubelet.clock.advance(300)
    kubelet.watch()
    tried_again = config.version == "1.36"
    assert (2 if tried_again else 1) == len(refused.statuses)
    assert ({R} if tried_again else set()) == kubelet.registered
    refused.stop()
    refused.start()
    kubelet.watch()
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})


@releases("1.35", "1.36")
@pytest.mark.parametrize("fails", [False, True])
def test_before_1_36_a_plugin_that_cannot_be_told_is_not_tried_again_either(
    kubelet: Kubelet, config: KubeletConfig, fails: bool
) -> None:
    deaf = kubelet.watched()
    deaf.failing["NotifyRegistrationStatus"] = StubError("not listening")
    if fails:
        deaf.failing["GetDevicePluginOptions"] = StubError("not yet")
    kubelet.watch()
    stays = config.version == "1.35"
    assert {str(deaf.socket): R if stays else ""} == kubelet.watched_sockets
    assert (stays and not fails) == (R in kubelet.registered)


# Restarts.


@releases("1.32", "1.33")
def test_before_1_33_a_restart_removes_files_too(kubelet: Kubelet, config: KubeletConfig) -> None:
    directory = kubelet.plugin_dir
    (directory / "dangling").symlink_to("nowhere")
    (directory / "file").touch()
    os.mkfifo(directory / "fifo")
    (directory / "sub").mkdir()
    (directory / "sub" / "kept").touch()
    (directory / "link").symlink_to("sub")
    (directory / "kubelet_internal_checkpoint").touch()
    kubelet.restart()
    kept = {"sub", "kubelet.sock", "kubelet_internal_checkpoint"}
    more = set() if config.version == "1.32" else {"dangling", "file", "fifo", "link"}
    assert kept | more == {path.name for path in directory.iterdir()}
    assert (directory / "sub" / "kept").exists()


# As upstream's end-to-end test: will not attempt to admit the succeeded pod after the kubelet
# restart and device plugin removed.
@releases("1.27", "1.28", NEWEST)
def test_before_1_28_a_restart_fails_pods_that_have_succeeded_and_spares_those_that_run(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    kubelet.plugin()
    ended, running = kubelet.started("ended"), kubelet.started("running")
    kubelet.terminate(ended)
    kubelet.restart()
    expected = "Failed" if config.version == "1.27" else "Succeeded"
    assert (expected, "Running") == (kubelet.pod(ended).phase, kubelet.pod(running).phase)


# Two plugins of a resource.


@releases("1.37")
def test_in_1_37_two_plugins_of_a_resource_do_not_disturb_each_other(kubelet: Kubelet) -> None:
    older, newer = kubelet.plugin(name="1"), kubelet.plugin(name="2")
    kubelet.admitted("p")
    newer.stop()
    process = kubelet._process
    assert process
    kubelet.wait(lambda: process.connections._current[R].path == str(older.socket))
    kubelet.admitted("q")
    assert (1, 1) == (len(newer.allocated), len(older.allocated))
    assert {"a", "b"} == kubelet.healthy(R)
    newest = kubelet.plugin(name="3")
    older.stop()
    older.wait(lambda: older.streams == 0)
    kubelet.relist(newest, ["c"])
    assert {R} == kubelet.registered
    kubelet.lose(newest)


@releases("1.37")
def test_in_1_37_a_socket_that_is_connected_cannot_register_again(kubelet: Kubelet) -> None:
    plugin = kubelet.plugin()
    assert f"device plugin already connected: {plugin.socket}" == refusal(plugin)
    assert {R} == kubelet.registered
    assert {"a", "b"} == kubelet.healthy(R)
    plugin.end_streams()
    kubelet.wait_for(R, (), {"a", "b"})
    kubelet.after_a_list(R, plugin.register)
    assert {"a", "b"} == kubelet.healthy(R)


@releases("1.37")
def test_in_1_37_a_failed_registration_costs_the_earlier_plugin_nothing(kubelet: Kubelet) -> None:
    healthy = kubelet.plugin(name="healthy")
    broken = kubelet.stub(name="broken")
    broken.failing["GetDevicePluginOptions"] = StubError("no")
    refusal(broken)
    assert {R} == kubelet.registered
    kubelet.lose(healthy)


@releases("1.37")
def test_in_1_37_the_plugin_watcher_disconnects_the_plugin_whose_socket_is_gone(
    kubelet: Kubelet,
) -> None:
    kubelet.plugin(devices=["a"])
    watched = kubelet.watched(devices=["b"])
    kubelet.after_a_list(R, kubelet.watch)
    watched.socket.unlink()
    kubelet.watch()
    watched.wait(lambda: watched.streams == 0)
    assert {R} == kubelet.registered
    assert {"b"} == kubelet.healthy(R)  # nobody has listed since


@releases("1.37")
def test_in_1_37_the_plugin_watcher_disconnects_nobody_for_a_plugin_that_is_gone(
    kubelet: Kubelet,
) -> None:
    watched = kubelet.watched(devices=["b"])
    kubelet.after_a_list(R, kubelet.watch)
    kubelet.hang_up(R)
    watched.wait(lambda: watched.streams == 0)
    kubelet.after_a_list(R, lambda: kubelet.plugin(devices=["a"]))
    watched.socket.unlink()
    kubelet.watch()
    assert {"a"} == kubelet.healthy(R)
