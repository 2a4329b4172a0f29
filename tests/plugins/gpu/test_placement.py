"""Which GPUs, MIG devices and replicas are preferred."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.kit.placement import WORK, best_group, square
from deviceplugin_gpu.advertised.devices import Fabric, Placement, Policy
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.snapshot import Gpu, Link, Mig, Nearness, Snapshot

# Layouts.


def node(links: Mapping[tuple[int, int], Link], count: int, numa: int = 0) -> Snapshot:
    """Return a node with ``count`` GPUs, ``numa`` of them on each NUMA node."""
    gpus = tuple(Gpu(n, f"g{n}", numa=n // numa if numa else None) for n in range(count))
    both = {**links, **{(b, a): link for (a, b), link in links.items()}}
    return Snapshot(gpus, {(f"g{a}", f"g{b}"): link for (a, b), link in both.items()})


def everywhere(count: int, link: Link) -> Snapshot:
    return node(dict.fromkeys(itertools.combinations(range(count), 2), link), count, count // 2)


def pairs(*joined: tuple[int, int], count: int, nvlinks: int = 4) -> Snapshot:
    return node(dict.fromkeys(joined, Link(Nearness.NODE, nvlinks)), count, 8)


def islands(count: int, size: int) -> Snapshot:
    same = [(a, b) for a, b in itertools.combinations(range(count), 2) if a // size == b // size]
    return node(dict.fromkeys(same, Link(Nearness.SINGLE_SWITCH, 2)), count, count // 2)


CUBE = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
}
"""Eight GPUs in a hybrid cube mesh, as in the first machines with NVLink."""


def cubes(count: int) -> Snapshot:
    return node(
        {
            (a, b): Link(Nearness.NODE, CUBE.get((a % 8, b % 8), 0) if a // 8 == b // 8 else 0)
            for a, b in itertools.combinations(range(count), 2)
        },
        count,
        4,
    )


def tree(count: int) -> Snapshot:
    levels = [(2, Nearness.SINGLE_SWITCH), (4, Nearness.MULTIPLE_SWITCHES), (8, Nearness.NODE)]
    found = {}
    for a, b in itertools.combinations(range(count), 2):
        near = [path for width, path in levels if a // width == b // width]
        found[a, b] = Link(max(near, default=Nearness.SYSTEM))
    return node(found, count, 8)


LAYOUTS = {
    "switched": everywhere(16, Link(Nearness.NODE, 18)),
    "bridged pairs": pairs(*((n, n + 1) for n in range(0, 16, 2)), count=16),
    "one pair": pairs((13, 14), count=16),
    "islands of four": islands(16, 4),
    "cube meshes": cubes(16),
    "13 of cube meshes": cubes(13),
    "PCIe tree": tree(16),
    "nothing is near": node({}, 16),
}


def whole(snapshot: Snapshot) -> list[Unit]:
    return [Unit("nvidia.com/gpu", gpu) for gpu in snapshot.gpus]


def preferred(
    snapshot: Snapshot, size: int, free: Sequence[int] = (), required: Sequence[int] = ()
) -> list[int]:
    placement = Placement(snapshot, whole(snapshot), "distributed")
    available = free or range(len(snapshot.gpus))
    found = placement.prefer([f"g{n}" for n in available], [f"g{n}" for n in required], size)
    return [int(one.removeprefix("g")) for one in found]


# Whole GPUs.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sixteen_free_gpus_are_searched_to_the_end_with_little_work(layout: str) -> None:
    snapshot = LAYOUTS[layout]
    fabric, uuids = Fabric(snapshot), [gpu.uuid for gpu in snapshot.gpus]
    scores = square(uuids, fabric.score)
    groups = [best_group(scores, (), size) for size in range(1, len(uuids) + 1)]
    assert [*range(1, len(uuids) + 1)] == [len(group.members) for group in groups]
    assert all(group.is_best for group in groups)
    assert WORK > max(group.work for group in groups)


@pytest.mark.parametrize(
    ("layout", "size"),
    [*itertools.product(LAYOUTS, [2, 3, 13]), ("cube meshes", 4), ("islands of four", 4)],
)
def test_sixteen_free_gpus_are_chosen_as_by_brute_force(layout: str, size: int) -> None:
    snapshot = LAYOUTS[layout]
    uuids = [gpu.uuid for gpu in snapshot.gpus]
    scores = Fabric(snapshot)._scores
    weights = {frozenset(pair): score for pair, score in scores.items()}
    total = sum(weights.values())

    def worth(group: tuple[str, ...]) -> tuple[int, int]:
        inside = sum(weights[frozenset(pair)] for pair in itertools.combinations(group, 2))
        touched = sum(scores[a, b] for a in group for b in uuids if a != b)
        return inside, total - touched + inside

    best = max(itertools.combinations(uuids, size), key=worth)
    placement = Placement(snapshot, whole(snapshot), "distributed")
    assert [*best] == placement.prefer(uuids, [], size)


def test_three_of_five_with_one_linked_pair_have_the_pair() -> None:
    assert [0, 1, 4] == preferred(pairs((1, 4), count=5), 3)


def test_the_one_linked_pair_is_found_among_sixteen_and_thirteen() -> None:
    assert [13, 14] == preferred(pairs((13, 14), count=16), 2)
    assert [11, 12] == preferred(pairs((11, 12), count=13), 2)


def test_a_single_gpu_does_not_break_a_linked_pair() -> None:
    assert [2] == preferred(pairs((0, 1), (3, 4), count=5), 1)
    assert [3] == preferred(pairs((0, 1), (2, 3), count=4), 1, free=[0, 1, 3])


def test_a_pair_is_taken_from_the_island_that_is_broken_already() -> None:
    assert [5, 6] == preferred(islands(8, 4), 2, free=[0, 1, 2, 3, 5, 6])


def test_more_nvlinks_are_better_than_a_nearer_path() -> None:
    links = {(0, 1): Link(Nearness.INTERNAL), (1, 2): Link(Nearness.SYSTEM, 1), (0, 2): Link()}
    assert [1, 2] == preferred(node(links, 3), 2)


def test_gpus_on_one_numa_node_are_nearer_where_no_path_is_known() -> None:
    assert [1, 3] == preferred(
        Snapshot(tuple(Gpu(n, f"g{n}", numa=(None, 1, 0, 1)[n]) for n in range(4))), 2
    )


def test_required_gpus_are_in_the_answer_and_what_is_near_them_follows() -> None:
    snapshot = pairs((0, 1), (2, 3), count=6)
    assert [3, 5] == preferred(snapshot, 2, required=[3, 5])
    assert [2, 3, 4] == preferred(snapshot, 3, required=[3, 4])


def test_what_cannot_be_had_is_answered_as_far_as_it_can() -> None:
    snapshot = pairs(count=3)
    assert [0, 2] == preferred(snapshot, 5, free=[0, 2])
    assert [0, 2] == preferred(snapshot, 1, required=[0, 2])
    assert [] == preferred(snapshot, 0)
    placement = Placement(snapshot, whole(snapshot), "distributed")
    assert ["g1", "unknown"] == placement.prefer(["g1", "unknown"], [], 2)
    assert ["g0", "g1"] == placement.prefer(["unknown", "g1", "g0"], [], 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_question_has_one_answer_whatever_its_order(layout: str) -> None:
    snapshot = LAYOUTS[layout]
    placement = Placement(snapshot, whole(snapshot), "distributed")
    ids, shuffle = [gpu.uuid for gpu in snapshot.gpus], random.Random(7).shuffle
    answers = set()
    for _ in range(100):
        shuffle(ids)
        answers.add(tuple(placement.prefer(ids, [], 3)))
    assert 1 == len(answers)


# Shared and partitioned GPUs.


def replicas(count: int, *numbers: int) -> list[Unit]:
    """Return ``count`` replicas of each GPU, or as many as ``numbers`` say."""
    gpus = [Gpu(n, f"g{n}") for n in range(len(numbers) or count)]
    return [
        Unit("nvidia.com/gpu", gpu, None, replica, each)
        for gpu, each in zip(gpus, numbers, strict=True)
        for replica in range(each)
    ]


def shared(
    units: Sequence[Unit],
    size: int,
    *,
    policy: Policy,
    used: Sequence[str] = (),
    required: Sequence[str] = (),
    distinct: bool = False,
) -> list[str]:
    placement = Placement(Snapshot(), units, policy, distinct=distinct)
    return placement.prefer([u.id for u in units if u.id not in used], required, size)


THREE = replicas(0, 4, 4, 4)


def test_distributed_takes_from_the_gpu_with_the_fewest_used() -> None:
    used = ["g0::0", "g0::1", "g1::0", "g2::1"]
    assert ["g1::1"] == shared(THREE, 1, policy="distributed", used=used)
    assert ["g1::1", "g2::0"] == shared(THREE, 2, policy="distributed", used=used)
    assert ["g0::2", "g1::1", "g1::2", "g2::0"] == shared(THREE, 4, policy="distributed", used=used)


def test_distributed_gives_different_gpus_even_if_one_has_fewer_used() -> None:
    used = ["g0::0", "g0::1", "g0::2"]
    units = replicas(0, 4, 4)
    assert ["g0::3", "g1::0"] == shared(units, 2, policy="distributed", used=used)


def test_packed_fills_the_gpu_with_the_most_used() -> None:
    used = ["g1::0", "g1::3", "g2::0"]
    assert ["g1::1"] == shared(THREE, 1, policy="packed", used=used)
    assert ["g1::1", "g1::2", "g2::1"] == shared(THREE, 3, policy="packed", used=used)
    assert ["g0::0", "g0::1"] == shared(THREE, 2, policy="packed")


def test_packed_begins_on_the_idle_gpu_that_is_large_enough() -> None:
    units = replicas(0, 8, 2, 4)
    assert ["g2::0", "g2::1", "g2::2"] == shared(units, 3, policy="packed")
    assert ["g1::0", "g1::1"] == shared(units, 2, policy="packed")


def test_packed_takes_different_gpus_where_only_these_are_of_use() -> None:
    used = ["g1::0"]
    assert ["g0::0", "g1::1"] == shared(THREE, 2, policy="packed", used=used, distinct=True)


def test_required_replicas_count_as_taken() -> None:
    assert ["g0::2", "g1::0"] == shared(THREE, 2, policy="distributed", required=["g0::2"])
    assert ["g1::0", "g1::2"] == shared(THREE, 2, policy="packed", required=["g1::2"])


def migs(*layout: int) -> list[Unit]:
    """Return as many MIG devices of each GPU as ``layout`` says."""
    return [
        Unit("nvidia.com/mig-1g.10gb", Gpu(n, f"g{n}"), Mig(f"m{n}{i}", i, i, 0))
        for n, count in enumerate(layout)
        for i in range(count)
    ]


def test_mig_devices_are_taken_by_their_gpus() -> None:
    assert ["m00", "m10"] == shared(migs(3, 3), 2, policy="distributed")
    assert ["m10", "m11"] == shared(migs(3, 3), 2, policy="packed", used=["m12"])


def test_replicas_of_mig_devices_are_spread_over_gpus_and_then_over_mig_devices() -> None:
    units = [replace(unit, replica=n, replicas=2) for unit in migs(2, 2) for n in range(2)]
    expected = ["m00::0", "m01::0", "m10::0", "m11::0"]
    assert expected == shared(units, 4, policy="distributed")
    assert ["m00::0", "m00::1"] == shared(units, 2, policy="packed")


def test_another_resource_on_the_same_gpus_does_not_count() -> None:
    others = [replace(unit, resource="nvidia.com/gpu.shared") for unit in migs(1)]
    placement = Placement(Snapshot(), [*replicas(0, 2, 2), *others], "packed")
    assert ["g0::0"] == placement.prefer(["g0::0", "g0::1", "g1::0", "g1::1"], [], 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from(["distributed", "packed"]),
    st.booleans(),
    st.data(),
)
def test_answers_for_shared_gpus_are_valid_and_as_far_apart_or_together_as_can_be(
    numbers: list[int], policy: Policy, distinct: bool, data: st.DataObject
) -> None:
    units = replicas(0, *numbers)
    free = data.draw(st.lists(st.sampled_from(units), min_size=1, unique_by=lambda u: u.id))
    size = data.draw(st.integers(1, len(free)))
    ids = [unit.id for unit in free]
    required = data.draw(st.lists(st.sampled_from(ids), max_size=size, unique=True))
    placement = Placement(Snapshot(), units, policy, distinct=distinct)
    found = placement.prefer(ids, required, size)
    assert size == len({*found})
    assert {*required} <= {*found} <= {*ids}
    assert found == placement.prefer(ids[::-1], required, size)

    left = Counter(unit.gpu.uuid for unit in free)
    idle = {uuid for uuid, count in left.items() if numbers[int(uuid[1:])] == count}

    def gpus(group: Sequence[str]) -> set[str]:
        return {one.split("::")[0] for one in group}

    possible = [
        gpus(group) for group in itertools.combinations(ids, size) if {*required} <= {*group}
    ]
    if policy == "distributed" or distinct:
        assert max(map(len, possible)) == len(gpus(found))
    else:
        assert min(len(group & idle) for group in possible) == len(gpus(found) & idle)
