"""Which functions a container gets: of one NUMA node, and of few or many cards."""

import pytest

from discovered import found
from rdma.machines import CONNECTX6, DGX_H100
from rdma.plugin import Build, Make

VFS = {"resourceList": [{"resourceName": "vf", "selectors": {"isVirtual": True}}]}
A, B = "0000:05:00", "0000:d2:00"


def prefer(
    make: Make,
    build: Build,
    free: list[str],
    size: int,
    required: tuple[str, ...] = (),
    **more: object,
) -> list[str]:
    plugin = make(build(CONNECTX6), VFS, **more)
    devices = found(plugin)
    chosen = plugin.prefer([devices[one] for one in free], [devices[one] for one in required], size)
    return [device.id for device in chosen]


def vfs(card: str, *numbers: int) -> list[str]:
    return [f"{card}.{number}" for number in numbers]


def test_functions_are_of_one_numa_node(make: Make, build: Build) -> None:
    free = [*vfs(A, 4), *vfs(B, 1, 2)]
    assert vfs(B, 1, 2) == prefer(make, build, free, 2)
    assert [*vfs(A, 4), *vfs(B, 1, 2)] == prefer(make, build, free, 3)


@pytest.mark.parametrize(("policy", "card"), [("packed", A), ("spread", B)])
def test_the_next_function_is_of_the_card_that_the_policy_says(
    make: Make, build: Build, policy: str, card: str
) -> None:
    free = [*vfs(A, 3, 4), *vfs(B, 1, 2, 3)]
    (chosen,) = prefer(make, build, free, 1, policy=policy)
    assert chosen.startswith(card)


def test_what_is_required_decides_the_node(make: Make, build: Build) -> None:
    free = [*vfs(A, 1, 2, 3, 4), *vfs(B, 1, 2)]
    assert vfs(B, 1, 2) == prefer(make, build, free, 2, (f"{B}.2",))


def test_shares_are_of_different_cards(make: Make, build: Build) -> None:
    shared = {"resourceList": [{"resourceName": "hca", "shares": 3}]}
    plugin = make(build(DGX_H100), shared)
    devices = found(plugin)
    chosen = list(plugin.prefer(list(devices.values()), [], 4))
    assert 4 == len({device.id.partition("::")[0] for device in chosen})
    assert 1 == len({device.topology for device in chosen})


def test_a_device_that_is_not_known_costs_nothing(make: Make, build: Build) -> None:
    plugin = make(build(CONNECTX6), VFS)
    devices = list(found(plugin).values())
    other = make(build(), VFS)
    found(other)
    assert 2 == len(list(other.prefer(devices, [], 2)))
