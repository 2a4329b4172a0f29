import os
import stat
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from deviceplugin import Allocation, Device, DeviceNode, Health, Mount, Topology
from deviceplugin.topology import numa_node, sysfs_numa_node

TEXTS = st.sampled_from(["/dev/a", "/dev/b", "/dev/c"])
ALLOCATIONS = st.builds(
    Allocation,
    nodes=st.lists(st.builds(DeviceNode, TEXTS, TEXTS), max_size=4),
    mounts=st.lists(st.builds(Mount, TEXTS, TEXTS), max_size=4),
    envs=st.dictionaries(TEXTS, TEXTS),
    annotations=st.dictionaries(TEXTS, TEXTS),
    cdi_names=st.lists(TEXTS, max_size=4),
)


class Mute:
    @override
    def __str__(self) -> str:
        raise OSError("handle is closed")


def test_a_device_needs_nothing_but_an_id() -> None:
    device = Device("a")
    assert ("a", "", Health(), None) == (device.id, device.resource, device.health, device.topology)
    assert (Allocation(), {}, {}) == (device.allocation, device.attributes, device.capacity)


def test_health_is_a_truth_with_a_reason() -> None:
    well, sick = Health(), Health.unhealthy("too hot")
    assert (True, "healthy") == (bool(well), str(well))
    assert (False, "unhealthy: too hot") == (bool(sick), str(sick))
    assert well == Health(reason=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, "no reason given"),
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
        (Path("/dev/a"), "/dev/a"),
        (Mute(), "a Mute"),
    ],
)
def test_whatever_is_given_as_a_reason_becomes_a_text(reason: object, text: str) -> None:
    health = Health.unhealthy(reason)  # type: ignore[arg-type]
    assert (False, text) == (bool(health), health.reason)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Device("a", nodes=DeviceNode("/dev/a")), Device("a", nodes=[DeviceNode("/dev/a")])),  # type: ignore[arg-type]
        (Device("a", cdi_names="x.io/a=1"), Device("a", cdi_names=["x.io/a=1"])),
        (Device("a", nodes=None, envs=None), Device("a")),  # type: ignore[arg-type]
        (Topology(0), Topology([0])),  # type: ignore[arg-type]
        (Topology(None), Topology()),  # type: ignore[arg-type]
        (Topology([2, 0, 1, 0]), Topology((0, 1, 2))),
        (Allocation(mounts=Mount("/opt")), Allocation(mounts=[Mount("/opt")])),  # type: ignore[arg-type]
    ],
)
def test_one_thing_may_stand_for_a_list_of_it_and_none_for_an_empty_one(
    one: object, other: object
) -> None:
    assert other == one


@pytest.mark.parametrize("field", ["envs", "annotations"])
def test_an_allocation_says_which_field_cannot_be(field: str) -> None:
    wrong: dict[str, Any] = {field: [1]}
    faulty = Device("a", **wrong)
    with pytest.raises(TypeError, match=f"^Allocation: {field} is of type list, not a mapping$"):
        Allocation(**wrong)
    with pytest.raises(TypeError, match=f"^Allocation: {field} is of type list, not a mapping$"):
        _ = faulty.allocation


@pytest.mark.parametrize("kind", [DeviceNode, Mount])
def test_a_path_is_the_same_in_the_container_unless_told(kind: type[DeviceNode | Mount]) -> None:
    assert ("/dev/a", "/dev/a") == (kind("/dev/a").host_path, kind("/dev/a").container_path)
    paths = kind(Path("/dev/a"), Path("/dev/b"))  # type: ignore[arg-type]
    assert kind("/dev/a", "/dev/b") == paths
    assert "/dev/b" == paths.container_path


def test_nothing_can_be_changed_afterwards() -> None:
    nodes, envs = [DeviceNode("/dev/a")], {"A": "1"}
    device = Device("a", nodes=nodes, envs=envs)
    nodes.clear()
    envs.clear()
    assert (DeviceNode("/dev/a"),) == device.nodes
    assert {"A": "1"} == device.envs
    with pytest.raises(TypeError):
        device.envs["B"] = "2"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        device.id = "b"  # type: ignore[misc]


def test_the_recipe_of_a_device_is_its_allocation() -> None:
    recipe: dict[str, Any] = {
        "nodes": (DeviceNode("/dev/a"),),
        "mounts": (Mount("/opt/a"),),
        "envs": {"A": "1"},
        "annotations": {"x.io/a": "1"},
        "cdi_names": ("x.io/a=1",),
    }
    assert Allocation(**recipe) == Device("a", **recipe).allocation


@given(ALLOCATIONS, ALLOCATIONS)
def test_merged_allocations_have_everything_once_and_in_order(
    first: Allocation, second: Allocation
) -> None:
    both = first + second
    for name in ("nodes", "mounts", "cdi_names"):
        given_items = [*getattr(first, name), *getattr(second, name)]
        assert tuple(dict.fromkeys(given_items)) == getattr(both, name)
    assert {**first.envs, **second.envs} == both.envs
    assert {**first.annotations, **second.annotations} == both.annotations


def test_a_device_node_makes_a_healthy_device_and_another_path_an_unhealthy_one(
    tmp_path: Path,
) -> None:
    node = DeviceNode("/dev/null", permissions="rw")
    assert Device("null", nodes=[node]) == Device.from_path("/dev/null")
    (tmp_path / "file").touch()
    for name, reason in (("ttyUSB0", "No such file or directory"), ("file", "not a device node")):
        device = Device.from_path(tmp_path / name)
        text = f"unhealthy: {tmp_path}/{name}: {reason}"
        assert (name, text) == (device.id, str(device.health))


# Topology.


NULL = "/dev/null"  # character device 1:3


def device(sysfs: Path, *, numa: str | None = None, parent_numa: str | None = None) -> Path:
    """A device below a PCI function, as in a real sysfs."""
    function = sysfs / "devices/pci0000:00/0000:00:1f.0"
    path = function / "drm/card0"
    path.mkdir(parents=True)
    for directory, text in ((path, numa), (function, parent_numa)):
        if text is not None:
            (directory / "numa_node").write_text(text)
    return path


def link(sysfs: Path, kind: str, number: str, target: Path) -> None:
    directory = sysfs / "dev" / kind
    directory.mkdir(parents=True)
    (directory / number).symlink_to(target)


def test_the_node_of_a_character_device_is_found_by_its_number(tmp_path: Path) -> None:
    link(tmp_path, "char", "1:3", device(tmp_path, numa="1\n"))
    (tmp_path / "by-id").symlink_to(NULL)
    assert 1 == numa_node(tmp_path / "by-id", sysfs=tmp_path)
    assert Topology((1,)) == Device.from_path(NULL, sysfs=tmp_path).topology


def test_the_node_of_a_block_device_is_found_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link(tmp_path, "block", "259:1", device(tmp_path, numa="0\n"))
    disk, real = Path("/dev/disk-that-not-every-machine-has"), Path.stat
    status = SimpleNamespace(st_mode=stat.S_IFBLK, st_rdev=os.makedev(259, 1))
    monkeypatch.setattr(Path, "stat", lambda path: status if path == disk else real(path))
    assert 0 == numa_node(disk, sysfs=tmp_path)


@pytest.mark.parametrize(
    ("own", "parents", "node"),
    [
        (None, "3\n", 3),
        ("0\n", "3\n", 0),
        *((None, text, None) for text in ("-1\n", "", "many\n", "é\n")),
        (None, None, None),
    ],
)
def test_the_nearest_node_counts(
    tmp_path: Path, own: str | None, parents: str | None, node: int | None
) -> None:
    path = device(tmp_path, numa=own, parent_numa=parents)
    assert node == sysfs_numa_node(path, sysfs=tmp_path)


def test_what_is_not_there_or_no_device_node_has_no_node(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("none", "loop"):
        assert sysfs_numa_node(tmp_path / name, sysfs=tmp_path) is None
    for path in (NULL, tmp_path, tmp_path / "none"):
        assert numa_node(path, sysfs=tmp_path) is None


def test_nothing_outside_sysfs_is_read(tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    sysfs.mkdir()
    (sysfs / "numa_node").write_text("1\n")
    for outside in (device(tmp_path / "elsewhere", numa="1\n"), sysfs):
        assert sysfs_numa_node(outside, sysfs=sysfs) is None
