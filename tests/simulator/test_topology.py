"""Topology hints, their merging, and alignment."""

import threading
from pathlib import Path

import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import Container, KubeletConfig, Pod, StubError
from deviceplugin_testing.simulator._device_manager.topology_hints import (
    Hint,
    HintProvider,
    affinity,
    mask,
    masks,
)
from deviceplugin_testing.simulator._host.config import TopologyPolicy
from kubelets.equipped import PREFERS, Kubelet, R, ids, near, preferred


def policy(
    name: TopologyPolicy, *, scope: str = "container", numa_nodes: tuple[int, ...] = (0, 1)
) -> KubeletConfig:
    return KubeletConfig(
        topology_policy=name,
        topology_scope=scope,  # type: ignore[arg-type]
        numa_nodes=numa_nodes,
        watch_interval=None,
    )


def hints(kubelet: Kubelet, wanted: int) -> list[tuple[int | None, bool]] | None:
    host, manager = kubelet._host, kubelet._live().manager
    container = Container("main", {R: wanted})
    given = HintProvider(host, manager).for_container(Pod("hinted", [container]), container, {})[R]
    return None if given is None else [(hint.nodes, hint.preferred) for hint in given]


TWO_NODES = [near("a", 0), near("b", 0), near("c", 1), near("d", 1)]

restricted = pytest.mark.parametrize("config", [policy("restricted")])
best_effort = pytest.mark.parametrize("config", [policy("best-effort")])
single = pytest.mark.parametrize("config", [policy("single-numa-node")])


# As upstream's TestGetTopologyHints.
@restricted
@pytest.mark.parametrize(
    ("devices", "wanted", "expected"),
    [
        (["a", "b"], 1, None),
        ([near("a", 0), near("b", 1)], 1, [(1, True), (2, True), (3, False)]),
        (TWO_NODES, 2, [(1, True), (2, True), (3, False)]),
        (TWO_NODES, 3, [(3, True)]),
        (TWO_NODES, 5, []),
        ([near("a", 0, 1), near("b", 1)], 2, [(2, True), (3, False)]),
        ([*TWO_NODES, "e", "f"], 1, [(1, True), (2, True), (3, False)]),
        ([*TWO_NODES, "e", "f"], 5, []),
        ([near("a", 0), near("b", 1, health="Unhealthy")], 1, [(1, True), (3, False)]),
        (["a", near("b", 0, health="Unhealthy")], 1, []),
        ([near("a", 7), near("b", 0)], 1, [(1, True)]),
    ],
)
def test_hints_are_the_sets_of_nodes_with_enough_devices(
    kubelet: Kubelet, devices: list[pb.Device], wanted: int, expected: list[tuple[int, bool]] | None
) -> None:
    kubelet.plugin(devices=devices)
    assert expected == hints(kubelet, wanted)


@restricted
def test_what_is_allocated_is_not_hinted_at_and_still_counts_for_the_size(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=TWO_NODES)
    kubelet.admitted()
    (used,) = kubelet.in_use(R)
    full = 2 if used in "ab" else 1
    assert [(full, True), (3, False)] == hints(kubelet, 2)


@pytest.mark.parametrize("config", [policy("restricted"), policy("single-numa-node")])
@pytest.mark.parametrize("wanted", [4, 9])
def test_devices_of_a_pod_that_has_ended_are_hinted_at_for_the_next_one(
    kubelet: Kubelet, wanted: int
) -> None:
    kubelet.plugin(devices=[near(id_, 0) for id_ in "abcd"])
    before = Pod("before", [Container("one", {R: 2}), Container("two", {R: wanted - 2})])
    assert (4 == wanted) == bool(kubelet.admit(before))
    kubelet.terminate(before)
    kubelet.admitted("next", main={R: 4})


# As upstream's TestGenerateDeviceTopologyHintsFiltersNUMANodes.
@pytest.mark.parametrize(
    "config",
    [
        KubeletConfig(
            topology_policy="restricted",
            numa_nodes=tuple(range(36)),
            max_numa_nodes=64,
            watch_interval=None,
        )
    ],
)
def test_only_nodes_that_have_devices_are_combined(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 3), near("b", 30)])
    assert [(1 << 3, True), (1 << 30, True), (1 << 3 | 1 << 30, False)] == hints(kubelet, 1)
    kubelet.admitted()


# As upstream's TestDeviceNUMANodes.
@pytest.mark.parametrize("config", [policy("restricted", numa_nodes=(0, 1, 2))])
def test_nodes_that_the_machine_does_not_have_are_ignored(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 1), near("b", 9), near("c", -1)])
    assert [(2, True)] == hints(kubelet, 1)
    assert {"a"} == ids(kubelet.admit(Pod.of("p", main={R: 1})))


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("name", ["none", "best-effort", "restricted", "single-numa-node"])
def test_policies_differ_on_what_needs_two_nodes(
    root: Path, name: TopologyPolicy, scope: str
) -> None:
    with Kubelet(root, config=policy(name, scope=scope)) as kubelet:
        kubelet.plugin(devices=TWO_NODES)
        outcome = kubelet.admit(Pod.of("p", main={R: 3}))
        rejects = name == "single-numa-node"
        why = "Resources cannot be allocated with Topology locality"
        expected = ("TopologyAffinityError", why) if rejects else ("", "")
        assert expected == (outcome.reason, outcome.event)
        assert rejects == kubelet.metrics.topology_manager_admission_errors_total


# As upstream's TestTopologyAlignedAllocation.
@best_effort
def test_aligned_devices_are_taken_first_and_then_others(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[*TWO_NODES, "e"])
    assert ids(kubelet.admit(Pod.of("p", main={R: 2}))) in ({"a", "b"}, {"c", "d"})
    assert "e" in ids(kubelet.admit(Pod.of("q", main={R: 3})))


@best_effort
def test_a_preference_counts_among_aligned_devices_only_if_there_is_a_choice(
    kubelet: Kubelet,
) -> None:
    stub = kubelet.plugin(devices=TWO_NODES, options=PREFERS)
    stub.on_prefer = lambda _request: preferred("bc")
    assert {"b"} == ids(kubelet.admit(Pod.of("p", main={R: 1})))
    (request,) = stub.preferred
    assert {"a", "b"} == set(request.available_deviceIDs)
    assert {"c", "d"} == ids(kubelet.admit(Pod.of("q", main={R: 2})))
    assert 1 == len(stub.preferred)


@best_effort
def test_when_aligned_devices_are_too_few_the_preference_is_for_all(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=[near("a", 0), near("b", 1), "e", "f"], options=PREFERS)
    assert {"a", "b", "e"} == ids(kubelet.admit(Pod.of("p", main={R: 3})))
    (request,) = stub.preferred
    assert {"a", "b"} == set(request.must_include_deviceIDs)
    assert {"a", "b", "e", "f"} == set(request.available_deviceIDs)
    assert 3 == request.allocation_size


# As upstream's TestFilterByAffinity.
@single
def test_a_device_near_several_nodes_is_aligned_with_each(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 0, 1), near("b", 1)])
    assert {"a", "b"} == ids(kubelet.admit(Pod.of("p", main={R: 2})))


# As upstream's TestGetPodTopologyHints.
@pytest.mark.parametrize("config", [policy("single-numa-node", scope="pod")])
def test_the_pod_scope_puts_all_containers_on_the_same_node(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=TWO_NODES)
    outcome = kubelet.admit(Pod.of("p", one={R: 1}, two={R: 1}))
    assert ids(outcome, "one") | ids(outcome, "two") in ({"a", "b"}, {"c", "d"})
    rejected = kubelet.admit(Pod.of("q", one={R: 1}, two={R: 2}))
    assert "TopologyAffinityError" == rejected.reason


@pytest.mark.parametrize("config", [policy("restricted", scope="pod")])
def test_a_pod_that_has_its_devices_may_keep_them(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=TWO_NODES)
    pod = kubelet.admitted("p", one={R: 1}, two={R: 1})
    assert kubelet.resize(pod)


@restricted
def test_a_container_that_has_its_devices_may_keep_them(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=TWO_NODES)
    pod = kubelet.admitted("p", main={R: 2})
    assert kubelet.resize(pod)
    more = Pod.of("p", main={R: 3})
    assert "TopologyAffinityError" == kubelet.resize(more).reason


@restricted
def test_devices_of_init_containers_must_be_near(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=TWO_NODES)
    pod = Pod("p", [Container("app", {R: 2})], [Container("init", {R: 1})])
    outcome = kubelet.admit(pod)
    assert ids(outcome, "app") in ({"a", "b"}, {"c", "d"})
    assert ids(outcome, "init") < ids(outcome, "app")


@pytest.mark.parametrize("config", [policy("restricted"), policy("restricted", scope="pod")])
def test_resources_of_nobody_give_no_hints(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=TWO_NODES)
    kubelet.admitted("p", main={R: 1, "x.io/nobody": 1})


@restricted
def test_a_failing_allocate_counts_as_the_topology_managers_error(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 0)]).failing["Allocate"] = StubError("no")
    assert "UnexpectedAdmissionError" == kubelet.admit(Pod.of("p", main={R: 1})).reason
    assert 1 == kubelet.metrics.topology_manager_admission_errors_total


# As upstream's TestGetTopologyHintsWithUpdates.
@restricted
def test_lists_that_arrive_during_admissions_do_no_harm(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(devices=TWO_NODES)
    finished = threading.Event()

    def update() -> None:
        while not finished.is_set():
            stub.update([near(id_, node) for id_, node in zip("abcd", (1, 1, 0, 0), strict=True)])
            stub.update(TWO_NODES)

    updating = threading.Thread(target=update)
    updating.start()
    for number in range(10):
        pod = Pod.of(f"p{number}", main={R: 2})
        assert kubelet.admit(pod)
        kubelet.terminate(pod)
    finished.set()
    updating.join()


def test_more_than_eight_nodes_are_refused(root: Path) -> None:
    kubelet = Kubelet(root, config=policy("restricted", numa_nodes=tuple(range(9))))
    with pytest.raises(ValueError, match="unsupported on machines with more than 8 NUMA Nodes"):
        kubelet.start()


def test_masks_come_small_ones_first() -> None:
    assert [0b001, 0b100, 0b101] == list(masks([0, 2]))
    assert 0b101 == mask([0, 2, -1])


# As upstream's TestFilteredDeviceHintsMergeWithOtherProviders.
@pytest.mark.parametrize(
    ("name", "devices", "cpus", "expected"),
    [
        ("restricted", [Hint(1, True), Hint(2, True)], [Hint(2, True)], (2, True)),
        ("restricted", [Hint(1, True)], [Hint(2, True)], (3, False)),
        ("best-effort", [Hint(1, True)], [Hint(2, True)], (3, True)),
        ("best-effort", [Hint(1, True)], [Hint(3, False)], (1, True)),
        ("restricted", [Hint(1, True), Hint(3, False)], [Hint(3, True)], (3, False)),
        ("restricted", [Hint(3, True)], None, (3, True)),
        ("restricted", [], None, (3, False)),
        ("single-numa-node", [Hint(1, True), Hint(3, False)], None, (1, True)),
        ("single-numa-node", [Hint(3, True)], None, (None, False)),
        ("single-numa-node", None, None, (None, True)),
        ("none", [], [], (None, True)),
    ],
)
def test_hints_of_several_providers_are_merged(
    name: TopologyPolicy,
    devices: list[Hint] | None,
    cpus: list[Hint] | None,
    expected: tuple[int | None, bool],
) -> None:
    assert expected == affinity(name, [{R: devices}, {"cpu": cpus}, {}], [0, 1])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([Hint(0b0011, False), Hint(0b1111, False)], 0b0011),
        ([Hint(0b1111, False), Hint(0b0110, False), Hint(0b0011, False)], 0b0011),
        ([Hint(0b0001, False), Hint(0b1111, True), Hint(0b0111, True)], 0b0111),
    ],
)
def test_the_narrowest_of_equally_good_places_wins(given: list[Hint], expected: int) -> None:
    nodes, _ = affinity("best-effort", [{R: given}], [0, 1, 2, 3])
    assert expected == nodes


def test_unpreferred_places_should_be_as_wide_as_the_most_demanding_resource() -> None:
    wide = [Hint(0b0011, False), Hint(0b1111, False)]
    narrow = [Hint(0b0001, False), Hint(0b0011, False), Hint(0b0111, False)]
    nodes, admitted = affinity("best-effort", [{"one": wide, "two": narrow}], [0, 1, 2, 3])
    assert (0b0011, True) == (nodes, admitted)
