"""Which GPUs, MIG devices and replicas are preferred."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from deviceplugin.kit.placement import WORK, best_group, square
from deviceplugin_gpu.advertised.devices import Placement, Policy, nearness
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
    near, uuids = nearness(snapshot), [gpu.uuid for gpu in snapshot.gpus]
    scores = square(uuids, lambda a, b: near.get((a, b), 0))
    groups = [best_group(scores, (), size) for size in range(1, len(uuids) + 1)]
    assert [*range(1, len(uuids) + 1)] == [len(group.members) for group in groups]
    assert all(group.is_best for group in groups)
    assert WORK > max(group.work for group in groups)


def test_a_linked_pair_is_taken_together_or_left_together() -> None:
    assert [0, 1, 4] == preferred(pairs((1, 4), count=5), 3)
    assert [13, 14] == preferred(pairs((13, 14), count=16), 2)
    assert [2] == preferred(pairs((0, 1), (3, 4), count=5), 1)
    assert [5, 6] == preferred(islands(8, 4), 2, free=[0, 1, 2, 3, 5, 6]), "broken already"


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


def test_an_unknown_id_is_far_from_everything() -> None:
    snapshot = pairs(count=3)
    placement = Placement(snapshot, whole(snapshot), "distributed")
    assert ["g1", "unknown"] == placement.prefer(["g1", "unknown"], [], 2)
    assert ["g0", "g1"] == placement.prefer(["unknown", "g1", "g0"], [], 2)
    assert ["g0", "g2"] == placement.prefer(["g2", "g0"], [], 5), "as many as there are"


# Shared and partitioned GPUs.


def replicas(*numbers: int) -> list[Unit]:
    """Return as many replicas of each GPU as ``numbers`` say."""
    return [
        Unit("nvidia.com/gpu", Gpu(n, f"g{n}"), None, replica, count)
        for n, count in enumerate(numbers)
        for replica in range(count)
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


THREE = replicas(4, 4, 4)


def test_distributed_takes_from_the_gpu_that_is_used_least_and_packed_from_the_opposite() -> None:
    used = ["g0::0", "g0::1", "g1::0", "g2::1"]
    assert ["g1::1", "g2::0"] == shared(THREE, 2, policy="distributed", used=used)
    assert ["g0::2", "g1::0"] == shared(THREE, 2, policy="distributed", required=["g0::2"])
    used = ["g1::0", "g1::3", "g2::0"]
    assert ["g1::1", "g1::2", "g2::1"] == shared(THREE, 3, policy="packed", used=used)
    distinct = shared(THREE, 2, policy="packed", used=["g1::0"], distinct=True)
    assert ["g0::0", "g1::1"] == distinct, "only these are of use"


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
    others = [replace(unit, resource="nvidia.com/gpu.shared") for unit in migs(0, 1)]
    placement = Placement(Snapshot(), [*replicas(2, 2), *others], "packed")
    assert ["g0::0"] == placement.prefer(["g0::0", "g0::1", "g1::0", "g1::1"], [], 1)
