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
from kubelets.equipped import PRE_START, Kubelet, R


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


def test_a_lost_plugin_matters_to_restarts_if_it_wants_pre_start_or_is_forgotten(
    kubelet: Kubelet,
) -> None:
    plain = kubelet.plugin("x.io/plain", ["a"], name="1")
    picky = kubelet.plugin(options=PRE_START, name="2")
    pods = kubelet.started("plain", main={"x.io/plain": 1}), kubelet.started("picky")
    kubelet.lose(plain)
    kubelet.lose(picky)
    assert kubelet.start_container(pods[0], "main")
    with pytest.raises(ContainerStartError, match=r"endpoint &\{.*\} has been stopped"):
        kubelet.start_container(pods[1], "main")
    kubelet.expire()
    expected = "endpoint not found in cache for a registered resource: x.io/plain"
    with pytest.raises(ContainerStartError, match=f"^{expected}$"):
        kubelet.start_container(pods[0], "main")


def test_devices_missing_at_the_start_are_allocated_then_if_there_are_enough(
    kubelet: Kubelet,
) -> None:
    pods = kubelet.admitted("two", main={R: 2}), kubelet.admitted("one")
    stub = kubelet.plugin(devices=["a"])
    with pytest.raises(ContainerStartError, match="Requested: 2, Available: 1"):
        kubelet.start_container(pods[0], "main")
    kubelet.start_container(pods[1], "main")
    assert {"DEVICES": "a"} == kubelet.env(pods[1])
    assert [["a"]] == stub.allocated


def test_devices_missing_at_the_start_are_missing_for_ever_with_pre_start(kubelet: Kubelet) -> None:
    pod = kubelet.admitted()
    stub = kubelet.plugin(options=PRE_START)
    expected = (
        "no devices found allocated in local cache for pod default/p, "
        "container main, resource x.io/dev"
    )
    with pytest.raises(ContainerStartError, match=f"^{expected}$"):
        kubelet.start_container(pod, "main")
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
    resources = [f"x.io/{name}" for name in "abc"]
    for one in resources:
        kubelet.plugin(one, one[-1], name=one[-1])
    pod = kubelet.started("p", main=dict.fromkeys(resources, 1))
    seen = set()
    for _ in range(30):
        kubelet.start_container(pod, "main")
        seen.add(kubelet.env(pod)["DEVICES"])
    assert {"a", "b", "c"} == seen
