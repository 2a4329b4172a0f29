"""Container starts: the answers of admission are replayed, and PreStartContainer called."""

import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import (
    ContainerStartError,
    KubeletConfig,
    Pod,
    RunOptions,
    StubError,
)
from kubelets.equipped import Kubelet, R

PRE_START = pb.DevicePluginOptions(pre_start_required=True)


# As upstream's TestGetDeviceRunContainerOptions, and end-to-end test: Keeps device plugin
# assignments across pod restarts.
def test_every_start_gets_what_allocate_answered_once(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    first = kubelet.run_options(pod, "main")
    kubelet.exit_container(pod, "main")
    assert first == kubelet.start_container(pod, "main")
    assert first is not None
    assert {"DEVICES": "a"} == first.envs
    assert 1 == len(stub.allocated)
    kubelet.terminate(pod)
    kubelet.admit(Pod.of("other", main={R: 1}))
    assert kubelet.run_options(pod, "main") is None


# As upstream's end-to-end test: Keeps device plugin assignments after the device plugin has
# restarted.
def test_a_restarted_plugin_is_not_asked_again(kubelet: Kubelet) -> None:
    kubelet.lose(kubelet.plugin(name="1"))
    second = kubelet.plugin(name="2")
    pod = kubelet.started()
    held = kubelet.held(pod)
    kubelet.lose(second)
    third = kubelet.plugin(name="3")
    assert kubelet.start_container(pod, "main")
    assert held == kubelet.held(pod)
    assert [] == third.allocated


def test_a_container_restarts_with_an_unhealthy_device(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.relist(stub, {"a": "Unhealthy"})
    assert kubelet.start_container(pod, "main")
    assert not kubelet.resize(pod)
    assert "Running" == kubelet.pod(pod).phase


# As upstream's TestDevicePreStartContainer.
def test_pre_start_is_called_at_every_start_with_the_allocated_devices(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(options=PRE_START)
    pod = kubelet.started("p", main={R: 2}, none={R: 0})
    kubelet.start_container(pod, "main")
    assert [["a", "b"], ["a", "b"]] == stub.pre_started
    assert stub.deadlines["PreStartContainer"] == pytest.approx(30, abs=5)


def test_a_failing_pre_start_keeps_the_container_from_starting_and_the_pod_goes_on(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(options=PRE_START)
    pod = kubelet.admitted()
    stub.failing["PreStartContainer"] = StubError("busy")
    with pytest.raises(ContainerStartError) as raised:
        kubelet.start_container(pod, "main")
    expected = (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = Internal desc = busy"
    )
    assert expected == str(raised.value)
    assert "CreateContainerConfigError" == raised.value.reason
    stub.failing.clear()
    assert kubelet.start_container(pod, "main")


@pytest.mark.parametrize("config", [KubeletConfig(pre_start_timeout=0.2)])
def test_a_hanging_pre_start_is_given_up(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(options=PRE_START)
    pod = kubelet.admitted()
    stub.hold("PreStartContainer")
    with pytest.raises(ContainerStartError, match="code = DeadlineExceeded desc = context"):
        kubelet.start_container(pod, "main")


def test_a_lost_plugin_matters_to_restarts_if_it_wants_pre_start(kubelet: Kubelet) -> None:
    plain, picky = (
        kubelet.plugin("x.io/plain", ["a"], name="1"),
        kubelet.plugin(options=PRE_START, name="2"),
    )
    pods = Pod.of("plain", main={"x.io/plain": 1}), Pod.of("picky", main={R: 1})
    for pod in pods:
        assert kubelet.run(pod)
    plain.stop()
    kubelet.lose(picky)
    assert kubelet.start_container(pods[0], "main")
    with pytest.raises(ContainerStartError, match=r"endpoint &\{.*\} has been stopped"):
        kubelet.start_container(pods[1], "main")


def test_after_the_grace_period_containers_of_a_lost_plugin_cannot_restart(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.lose(stub)
    kubelet.expire()
    with pytest.raises(ContainerStartError) as raised:
        kubelet.start_container(pod, "main")
    assert "endpoint not found in cache for a registered resource: x.io/dev" == str(raised.value)


def test_devices_missing_at_the_start_are_allocated_then(kubelet: Kubelet) -> None:
    pod = kubelet.admitted()
    stub = kubelet.plugin(devices=["a"])
    options = kubelet.start_container(pod, "main")
    assert options is not None
    assert {"DEVICES": "a"} == options.envs
    assert [["a"]] == stub.allocated


def test_devices_missing_at_the_start_may_be_impossible_to_get(kubelet: Kubelet) -> None:
    pod = kubelet.admitted("p", main={R: 2})
    kubelet.plugin(devices=["a"])
    with pytest.raises(ContainerStartError, match="Requested: 2, Available: 1"):
        kubelet.start_container(pod, "main")


def test_devices_missing_at_the_start_are_missing_for_ever_with_pre_start(kubelet: Kubelet) -> None:
    pod = kubelet.admitted()
    stub = kubelet.plugin(options=PRE_START)
    with pytest.raises(ContainerStartError) as raised:
        kubelet.start_container(pod, "main")
    expected = (
        "no devices found allocated in local cache for pod default/p, "
        "container main, resource x.io/dev"
    )
    assert expected == str(raised.value)
    assert [] == stub.allocated


# As upstream's TestDeviceRunContainerOptions, and end-to-end test: can make a CDI device accessible
# in a container.
def test_answers_are_merged_and_the_first_wins() -> None:
    one = pb.ContainerAllocateResponse(
        envs={"A": "1", "B": "1"},
        annotations={"k": "1"},
        mounts=[pb.Mount(container_path="/m", host_path="/1")],
        devices=[pb.DeviceSpec(container_path="/d", host_path="/1", permissions="zz")],
        cdi_devices=[pb.CDIDevice(name="v/c=1"), pb.CDIDevice(name="v/c=2")],
    )
    two = pb.ContainerAllocateResponse(
        envs={"B": "2", "C": ""},
        annotations={"k": "2", "l": "2"},
        mounts=[pb.Mount(container_path="/m", host_path="/2"), pb.Mount()],
        devices=[pb.DeviceSpec(container_path="/d", host_path="/2")],
        cdi_devices=[pb.CDIDevice(name="v/c=2"), pb.CDIDevice(name="v/c=3")],
    )
    merged = RunOptions.merge([one, two, pb.ContainerAllocateResponse()])
    assert {"A": "1", "B": "1", "C": ""} == merged.envs
    assert {"k": "1", "l": "2"} == merged.annotations
    assert (pb.Mount(container_path="/m", host_path="/1"), pb.Mount()) == merged.mounts
    assert (one.devices[0],) == merged.devices
    assert ("v/c=1", "v/c=2", "v/c=3") == merged.cdi_devices


def test_the_order_of_resources_is_random_at_every_start(kubelet: Kubelet) -> None:
    for number in range(3):
        resource = f"x.io/r{number}"
        kubelet.plugin(resource, [f"d{number}"], name=f"{number}")
    pod = kubelet.admitted("p", main={f"x.io/r{number}": 1 for number in range(3)})
    seen = set()
    for _ in range(30):
        options = kubelet.run_options(pod, "main")
        assert options is not None
        seen.add(options.envs["DEVICES"])
    assert {"d0", "d1", "d2"} == seen
