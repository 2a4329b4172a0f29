"""What a kubelet restart does to pods, and what kills a kubelet."""

import pytest

from deviceplugin_testing.simulator import (
    Behaviour,
    Container,
    KubeletConfig,
    KubeletCrashed,
    Pod,
    StubPlugin,
)
from kubelets.equipped import PRE_START, Kubelet, R, during_allocate, near, reason


# As upstream's end-to-end test: Keeps device plugin assignments across kubelet restarts.
def test_a_running_container_is_left_alone(kubelet: Kubelet) -> None:
    kubelet.plugin()
    pod = kubelet.started()
    held = kubelet.held(pod)
    kubelet.restart()
    kubelet.tick()
    assert ({R: 0}, {R: 0}) == (kubelet.node.capacity, kubelet.node.allocatable)
    assert ("Running", held) == (kubelet.pod(pod).phase, kubelet.held(pod))
    assert kubelet.run_options(pod, "main") is not None
    kubelet.plugin(name="2")
    assert held == kubelet.held(pod)
    assert kubelet.in_use(R) == held["main"][R]


# As upstream's end-to-end tests: should deploy pod consuming devices first but fail with admission
# error after kubelet restart in case device plugin hasn't re-registered, Does not keep device
# plugin assignments across node reboots if fails admission.
def test_a_container_that_was_down_costs_the_pod_its_life(kubelet: Kubelet) -> None:
    kubelet.plugin()
    pod = Pod("p", [Container("main", {R: 1}), Container("other")])
    assert kubelet.run(pod)
    kubelet.exit_container(pod, "main")
    kubelet.restart()
    state = kubelet.pod(pod)
    assert ("Failed", "UnexpectedAdmissionError") == (state.phase, state.reason)
    assert "no healthy devices present; cannot allocate" in state.message
    assert set() == state.running
    kubelet.plugin(name="2")
    pod = Pod("with-init", [Container("main")], [Container("init", {R: 1})])
    assert kubelet.run(pod)  # whose init container has finished
    kubelet.restart()
    assert "Failed" == kubelet.pod(pod).phase


def test_a_plugin_that_is_back_in_time_saves_the_pod(kubelet: Kubelet) -> None:
    kubelet.plugin()
    pod = Pod("p", [Container("main", {R: 1})], [Container("init", {R: 1})])
    assert kubelet.run(pod)
    kubelet.restart(readmit=False)
    again = kubelet.plugin(name="2")
    assert not kubelet.admit(Pod.of("q", main={R: 2}))  # nothing is collected before
    (outcome,) = kubelet.readmit()
    assert (True, pod, []) == (bool(outcome), outcome.pod, again.allocated)


@pytest.mark.parametrize("devices", [{"b": "Healthy"}, {"a": "Unhealthy", "b": "Healthy"}])
def test_a_device_that_does_not_come_back_well_costs_the_pod_its_life(
    kubelet: Kubelet, devices: dict[str, str]
) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.exit_container(pod, "main")
    kubelet.restart(readmit=False)
    kubelet.plugin(devices=devices, name="2")
    (outcome,) = kubelet.readmit()
    assert reason(outcome) == (
        "previously allocated devices are no longer healthy; "
        "cannot allocate unhealthy devices x.io/dev"
    )


# As upstream's end-to-end test: [OrphanedPods] pods deleted while kubelet is down.
def test_devices_of_a_pod_deleted_meanwhile_are_free(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.stop()
    kubelet.delete(pod)
    kubelet.start()
    kubelet.plugin(devices=["a"], name="2")
    kubelet.admitted("q")


def test_pre_start_is_skipped_until_the_plugin_is_back(kubelet: Kubelet) -> None:
    first = kubelet.plugin(options=PRE_START)
    pod = kubelet.started()
    kubelet.restart()
    assert kubelet.start_container(pod, "main")
    assert 1 == len(first.pre_started)
    second = kubelet.plugin(options=PRE_START, name="2")
    assert kubelet.start_container(pod, "main")
    assert 1 == len(second.pre_started)


def test_after_a_restart_every_device_reads_healthy_until_the_first_list(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    pod = kubelet.started()
    kubelet.relist(stub, {"a": "Unhealthy"})
    assert {"main": {R: {"a": "Unhealthy"}}} == kubelet.device_health(pod)
    kubelet.restart()
    assert {"main": {R: {"a": "Healthy"}}} == kubelet.device_health(pod)


# Crashes.

RESTRICTED = KubeletConfig(topology_policy="restricted", numa_nodes=(0, 1), watch_interval=None)
restricted = pytest.mark.parametrize("config", [RESTRICTED])
fixed = pytest.mark.parametrize("behaviour", [Behaviour.fixed()])


def drop_while_allocating(kubelet: Kubelet, stub: StubPlugin, **left: str) -> None:
    """Have Allocate answer only after the kubelet has taken a list of what is left."""
    during_allocate(stub, lambda: kubelet.relist(stub, left))


def test_a_device_that_disappears_during_allocate_kills_the_kubelet(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=["a"])
    drop_while_allocating(kubelet, stub)
    text = r"kubelet crashed: nil pointer.*'a' of x\.io/dev is not listed any more.*\(seed 0\)"
    with pytest.raises(KubeletCrashed, match=text):
        kubelet.admit(Pod.of("p", main={R: 1}))
    assert not kubelet.running
    assert 1 == len(kubelet.crashes)
    stub.wait(lambda: stub.streams == 0)
    with pytest.raises(TimeoutError, match=r"the kubelet is stopped, .*; kubelet crashed: nil"):
        kubelet.wait_for(R, {"a"}, timeout=0)
    kubelet.start()
    assert kubelet.running


@fixed
def test_fixed_a_device_that_disappears_during_allocate_is_harmless(kubelet: Kubelet) -> None:
    drop_while_allocating(kubelet, kubelet.plugin(devices=["a"]))
    kubelet.admitted()


def test_a_device_that_turns_unhealthy_during_allocate_is_harmless(kubelet: Kubelet) -> None:
    drop_while_allocating(kubelet, kubelet.plugin(devices=["a"]), a="Unhealthy")
    kubelet.admitted()


@restricted
def test_a_resize_after_an_allocated_device_disappeared_kills_the_kubelet(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=[near("a", 0)])
    pod = kubelet.started()
    kubelet.relist(stub, [near("b", 1)])
    with pytest.raises(KubeletCrashed):
        kubelet.resize(pod)


@restricted
def test_a_restart_after_an_allocated_device_disappeared_is_a_crash_loop(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 0)])
    kubelet.started()
    for number in range(2):
        kubelet.stop()
        kubelet.start(readmit=False)
        kubelet.plugin(devices=[near("b", 1)], name=f"{number}")
        with pytest.raises(KubeletCrashed):
            kubelet.readmit()
    assert 2 == len(kubelet.crashes)


@restricted
def test_a_device_that_disappears_between_init_and_app_container_kills_the_kubelet(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=[near("a", 0), near("b", 1)])

    def lose_what_is_held() -> None:
        rest = [near(id_, 0) for id_ in {"a", "b"} - set(stub.allocated[0])]
        kubelet.after_a_list(R, lambda: stub.update(rest))

    during_allocate(kubelet.plugin("x.io/other", ["o"], name="other"), lose_what_is_held)
    init = [Container("one", {R: 1}), Container("two", {"x.io/other": 1})]
    with pytest.raises(KubeletCrashed):
        kubelet.admit(Pod("p", [Container("app", {R: 1})], init))
