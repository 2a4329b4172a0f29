"""A GPU on which a pod has left something is given to nobody until it is clean."""

from collections.abc import Callable
from datetime import timedelta

import pytest

import deviceplugin as dp
from amd.machines import SMALL
from amd.plugin import Build, Make
from amd.tree import AmdTree
from deviceplugin_amd import AmdPlugin
from deviceplugin_amd.handover import Handover
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from discovered import unhealthy
from hardware import kernel_events

FIRST, SECOND, *_ = SMALL.addresses
GIB = 1 << 30
LEFT = "still in use by process 4711 (1.5 GiB), though no pod has it"


class Clock:
    """Passes when somebody pauses, and does then what a test wants."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], None] | None = None

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self.meanwhile:
            self.meanwhile()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tree(build: Build) -> AmdTree:
    return build()


@pytest.fixture
def plugin(tree: AmdTree, make: Make, clock: Clock) -> AmdPlugin:
    return make(tree, Handover(tree.sysfs, clock, clock.pause))


def by_id(plugin: AmdPlugin) -> dict[str, dp.Device]:
    return {device.id: device for device in plugin.discover()}


def test_a_pods_own_processes_make_nothing_unhealthy(tree: AmdTree, plugin: AmdPlugin) -> None:
    devices = by_id(plugin)
    plugin.allocate([devices[FIRST]])
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    assert {} == unhealthy(plugin)


def test_what_a_pod_left_behind_makes_its_gpu_unhealthy_until_it_is_gone(
    tree: AmdTree, plugin: AmdPlugin
) -> None:
    devices = by_id(plugin)
    plugin.allocate([devices[FIRST]])
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    plugin.released([devices[FIRST]])
    assert {FIRST: LEFT} == unhealthy(plugin)
    assert {FIRST: LEFT} == unhealthy(plugin)
    tree.end(4711)
    assert {} == unhealthy(plugin)
    plugin.allocate([devices[FIRST]])


def test_a_gpu_that_is_still_in_use_is_not_allocated(
    tree: AmdTree, plugin: AmdPlugin, clock: Clock
) -> None:
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    assert {} == unhealthy(plugin)  # who holds it is not known
    with pytest.raises(dp.AllocationError) as refused:
        plugin.allocate([devices[FIRST], devices[SECOND]])
    assert f"{FIRST}: {LEFT}" == str(refused.value)
    assert 5 <= clock.now < 6
    assert {FIRST: LEFT} == unhealthy(plugin)
    plugin.allocate([devices[SECOND]])


def test_an_allocation_waits_for_a_process_that_is_ending(
    tree: AmdTree, plugin: AmdPlugin, clock: Clock
) -> None:
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, GIB)
    clock.meanwhile = lambda: tree.end(4711)
    plugin.allocate([devices[FIRST]])
    assert clock.now < 1


def test_a_queue_is_use_and_an_open_file_is_not(tree: AmdTree, plugin: AmdPlugin) -> None:
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 12, 0)
    plugin.allocate([devices[FIRST]])
    tree.use(tree.node(SECOND), 13, 0, queue=True)
    plugin.released([devices[SECOND]])
    assert {SECOND: "still in use by process 13 (a queue), though no pod has it"} == (
        unhealthy(plugin)
    )


def test_a_share_is_looked_at_when_nobody_has_another_one(
    tree: AmdTree, make: Make, clock: Clock
) -> None:
    plugin = make(tree, Handover(tree.sysfs, clock, clock.pause), shares=2)
    devices = by_id(plugin)
    one, two = devices[f"{FIRST}::0"], devices[f"{FIRST}::1"]
    plugin.allocate([one])
    tree.use(tree.node(FIRST), 4711, 3 * GIB // 2)
    plugin.allocate([two])
    plugin.released([one])
    assert {} == unhealthy(plugin)
    plugin.released([two])
    assert {f"{FIRST}::0": LEFT, f"{FIRST}::1": LEFT} == unhealthy(plugin)


def test_partitions_are_clean_each_by_itself(tree: AmdTree, plugin: AmdPlugin) -> None:
    for address in SMALL.addresses:
        tree.divide(address, "DPX")
    devices = by_id(plugin)
    tree.use(tree.node(FIRST, 1), 4711, 3 * GIB // 2)
    plugin.released([devices[f"{FIRST}-dpx_nps1-0"], devices[f"{FIRST}-dpx_nps1-1"]])
    assert {f"{FIRST}-dpx_nps1-1": LEFT} == unhealthy(plugin)


def test_a_gpu_that_is_divided_anew_is_forgotten(
    tree: AmdTree, plugin: AmdPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_events.pretend(monkeypatch)
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.released([devices[FIRST]])
    assert [FIRST] == [*unhealthy(plugin)]
    tree.end(4711)
    tree.divide(FIRST, "DPX")
    by_id(plugin)
    assert not plugin._is_due()


def test_a_discovery_is_asked_for_when_a_gpu_becomes_clean_or_not(
    tree: AmdTree, plugin: AmdPlugin
) -> None:
    devices = by_id(plugin)
    assert not plugin._is_due()
    assert 5 == plugin._until_due()
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.released([devices[FIRST]])
    assert plugin._is_due()
    by_id(plugin)
    assert not plugin._is_due()
    assert 0.5 == plugin._until_due()
    tree.end(4711)
    assert plugin._is_due()
    by_id(plugin)
    assert not plugin._is_due()
    assert 5 == plugin._until_due()


def test_nothing_is_looked_at_where_that_is_not_wanted(tree: AmdTree, make: Make) -> None:
    plugin = make(tree, clean_handover=False)
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.allocate([devices[FIRST]])
    plugin.released([devices[FIRST]])
    assert {} == unhealthy(plugin)


def test_without_privilege_nobody_knows_who_uses_a_gpu(tree: AmdTree, plugin: AmdPlugin) -> None:
    tree.refuse()
    devices = by_id(plugin)
    tree.use(tree.node(FIRST), 4711, GIB)
    plugin.allocate([devices[FIRST]])
    plugin.released([devices[FIRST]])
    assert {} == unhealthy(plugin)


def test_after_a_pod_the_kubelet_sees_its_gpu_unhealthy_until_it_is_clean(
    tree: AmdTree, make: Make, kubelet: Kubelet
) -> None:
    plugin = make(tree, include=(FIRST,))
    pod = Pod.of("training", main={"amd.com/gpu": 1})
    quick = timedelta(milliseconds=50)
    with kubelet.running(plugin, pod_resources_interval=quick, discovery_interval=quick) as node:
        node.wait_for("amd.com/gpu", {FIRST})
        node.kubelet.run(pod)
        tree.use(tree.node(FIRST), 4711, GIB)
        node.kubelet.terminate(pod)
        node.wait_for("amd.com/gpu", set(), unhealthy={FIRST})
        tree.end(4711)
        node.wait_for("amd.com/gpu", {FIRST})
