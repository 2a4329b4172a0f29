"""What the kubelets of earlier releases do differently, each on both sides of the change."""

import os
from typing import Any, cast

import grpc
import pytest

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as plugin_pb
from deviceplugin_testing.simulator import (
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
from kubelets.equipped import Kubelet, R, near

SIDECAR = Pod("p", [Container("main")], [Container("side", {R: 1}, restarts_always=True)])


def releases(*names: str, **config: Any) -> pytest.MarkDecorator:
    """Run a test on these releases; the name of each is in ``kubelet``."""
    configs = [KubeletConfig(version=name, watch_interval=None, **config) for name in names]
    return pytest.mark.parametrize("config", configs, ids=names)


@pytest.fixture
def behaviour(config: KubeletConfig) -> Behaviour:
    return Behaviour.of(config.release)


def get(kubelet: Kubelet, pod: str) -> tuple[grpc.StatusCode, str]:
    """Return what is wrong with asking for ``pod``."""
    with pytest.raises(grpc.RpcError) as raised:
        kubelet.agent["Get"](pb.GetPodResourcesRequest(pod_name=pod, pod_namespace="default"))
    call = cast("grpc.Call", raised.value)
    return call.code(), str(call.details())


def listed(kubelet: Kubelet) -> dict[str, list[str]]:
    """Return pod to containers."""
    answer = kubelet.agent["List"](pb.ListPodResourcesRequest())
    return {pod.name: [each.name for each in pod.containers] for pod in answer.pod_resources}


# Versions.


def test_the_default_is_the_newest_and_does_all_that_is_known() -> None:
    assert NEWEST == KubeletConfig().version == RELEASES[-1]
    assert Behaviour.v1_36() == Behaviour.of(Release.of(NEWEST))


@pytest.mark.parametrize("version", ["1.25", "1.37", "1.9", "1.36.2", "28", ""])
def test_a_release_that_is_not_known_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=r"is not a known kubelet release: use one of 1\.26, "):
        KubeletConfig(version=version)


# Pod resources.


@releases("1.26")
def test_before_1_27_there_is_no_get(kubelet: Kubelet) -> None:
    expected = "unknown method Get for service v1.PodResourcesLister"
    assert (grpc.StatusCode.UNIMPLEMENTED, expected) == get(kubelet, "p")
    assert {} == kubelet.metrics.pod_resources_endpoint_requests


@releases("1.27", "1.33")
def test_from_1_27_to_1_33_get_is_disabled(kubelet: Kubelet) -> None:
    kubelet.plugin()
    kubelet.admitted()
    expected = grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled"
    assert expected == get(kubelet, "p") == get(kubelet, "absent")
    assert {"get": 2} == kubelet.metrics.pod_resources_endpoint_errors


@releases("1.34")
def test_from_1_34_a_pod_can_be_asked_for(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    kubelet.admitted()
    request = pb.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
    (container,) = kubelet.agent["Get"](request).pod_resources.containers
    assert ["a"] == list(container.devices[0].device_ids)


@releases(RELEASES[0], "1.31", NEWEST)
def test_every_release_says_what_is_allocatable(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a", "b"])
    answer = kubelet.agent["GetAllocatableResources"](pb.AllocatableResourcesRequest())
    assert ["a", "b"] == [id_ for each in answer.devices for id_ in each.device_ids]


@releases("1.33", "1.34")
def test_before_1_34_pods_that_have_ended_are_listed_without_devices(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.admitted()
    kubelet.terminate(pod)
    answer = kubelet.agent["List"](pb.ListPodResourcesRequest())
    expected = ["p"] if config.version == "1.33" else []
    assert expected == [each.name for each in answer.pod_resources]
    assert not any(c.devices for each in answer.pod_resources for c in each.containers)


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
    answer = stub.on_allocate

    def allocate(ids: list[str]) -> plugin_pb.AllocateResponse:
        stub.update([])
        kubelet.wait_for(R, ())
        return answer(ids)

    stub.on_allocate = allocate
    if config.version == "1.33":
        kubelet.admitted()
        return
    with pytest.raises(KubeletCrashed):
        kubelet.admit(Pod.of("p", main={R: 1}))


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
    stub = kubelet.plugin(devices=["a"])
    names = [plugin_pb.CDIDevice(name=f"x.io/dev={each}") for each in ("b", "a")]
    answer = plugin_pb.ContainerAllocateResponse(cdi_devices=names)
    stub.on_allocate = lambda _: plugin_pb.AllocateResponse(container_responses=[answer])
    options = kubelet.run(Pod.of("p", main={R: 1})).options["main"]
    assert options is not None
    passed = config.version != "1.28"
    assert (("x.io/dev=b", "x.io/dev=a") if passed else ()) == options.cdi_devices
    annotated = {"cdi.k8s.io/devicemanager_default_p-main": "x.io/dev=a,x.io/dev=b"}
    expected = annotated if config.version in {"1.29", "1.31"} else {}
    assert expected == options.annotations


@releases("1.31")
def test_a_cdi_annotation_whose_name_would_be_too_long_is_left_out(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    answer = plugin_pb.ContainerAllocateResponse(cdi_devices=[plugin_pb.CDIDevice(name="x/y=z")])
    stub.on_allocate = lambda _: plugin_pb.AllocateResponse(container_responses=[answer])
    name = "n" * (63 - len("devicemanager_default_p-") + 1)
    options = kubelet.run(Pod("p", [Container(name, {R: 1})])).options[name]
    assert options is not None
    assert ({}, ("x/y=z",)) == (options.annotations, options.cdi_devices)


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
    refused = kubelet.stub(directory=kubelet.registry_dir)
    refused.failing["GetDevicePluginOptions"] = StubError("not yet")
    kubelet.watch()
    assert "not yet" in refused.statuses[0].error
    del refused.failing["GetDevicePluginOptions"]
    clock = cast("Any", kubelet._host.clock)
    clock.advance(300)
    kubelet.watch()
    tried_again = config.version == "1.36"
    assert tried_again == (len(refused.statuses) == 2)
    assert ({R} if tried_again else set()) == kubelet.registered
    refused.stop()
    refused.start()
    kubelet.watch()
    kubelet.watch()
    kubelet.wait_for(R, {"a", "b"})


@releases("1.35")
def test_before_1_36_that_is_so_even_if_the_plugin_cannot_be_told(kubelet: Kubelet) -> None:
    refused = kubelet.stub(directory=kubelet.registry_dir)
    refused.failing["GetDevicePluginOptions"] = StubError("not yet")
    refused.failing["NotifyRegistrationStatus"] = StubError("not listening")
    kubelet.watch()
    assert {str(refused.socket): R} == kubelet.watched_sockets
    assert set() == kubelet.registered


@releases("1.35", "1.36")
def test_before_1_36_a_plugin_that_cannot_be_told_of_its_success_stays_registered(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    deaf = kubelet.stub(directory=kubelet.registry_dir)
    deaf.failing["NotifyRegistrationStatus"] = StubError("not listening")
    kubelet.watch()
    expected = R if config.version == "1.35" else ""
    assert {str(deaf.socket): expected} == kubelet.watched_sockets


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


@releases("1.27", "1.28")
def test_before_1_28_a_restart_fails_pods_that_have_succeeded(
    kubelet: Kubelet, config: KubeletConfig
) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.terminate(pod)
    kubelet.restart()
    expected = "Failed" if config.version == "1.27" else "Succeeded"
    assert expected == kubelet.pod(pod).phase


@releases(RELEASES[0], "1.31", NEWEST)
def test_a_running_pod_survives_a_restart_of_every_release(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.restart()
    assert "Running" == kubelet.pod(pod).phase
    assert {"a"} == kubelet.in_use(R)
