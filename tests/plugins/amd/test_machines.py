"""The plugin finds what the records of real machines say."""

from collections import Counter

import pytest

from amd.machines import MI210, MI300X, MI308, VEGA, Machine
from amd.plugin import Build, Make

NAMES = ["amdgpu_xcp_{}", "amdgpu_xcp.{}"]
"""What newer and older kernels call partitions."""


@pytest.mark.parametrize(
    ("machine", "single", "mixed", "numa"),
    [
        (VEGA, {"amd.com/gpu": 1}, {"amd.com/gpu": 1}, {None: 1}),
        (MI210, {"amd.com/gpu": 8}, {"amd.com/gpu": 8}, {0: 4, 1: 4}),
        (MI308, {"amd.com/gpu": 32}, {"amd.com/cpx_nps1": 32}, {0: 16, 1: 16}),
        (MI300X, {"amd.com/gpu": 63}, {"amd.com/cpx_nps4": 63}, {0: 32, 1: 31}),
    ],
    ids=["vega", "mi210", "mi308", "mi300x"],
)
def test_a_recorded_machine_has_its_devices_by_either_naming(
    build: Build,
    make: Make,
    machine: Machine,
    single: dict[str, int],
    mixed: dict[str, int],
    numa: dict[int | None, int],
) -> None:
    tree = build(machine, links=False)
    devices = list(make(tree).discover())
    assert single == Counter(device.resource for device in devices)
    assert numa == Counter(
        device.topology.numa_nodes[0] if device.topology else None for device in devices
    )
    assert all(device.health for device in devices)
    named = make(tree, resource_naming_strategy="mixed").discover()
    assert mixed == Counter(device.resource for device in named)


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("xcp", NAMES)
def test_partitions_are_found_whatever_the_kernel_calls_them_and_numbers_them(
    build: Build, make: Make, xcp: str, high: bool
) -> None:
    tree = build(MI308, xcp=xcp, high=high, links=False)
    devices = {device.id: device for device in make(tree).discover()}
    expected = [f"{one}-cpx_nps1-{part}" for one in sorted(MI308.addresses) for part in range(4)]
    assert expected == list(devices)
    nodes = {one: [node.container_path for node in device.nodes] for one, device in devices.items()}
    assert ["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"] == nodes["0000:0a:00.0-cpx_nps1-0"]
    assert ["/dev/kfd", "/dev/dri/card12", "/dev/dri/renderD139"] == nodes[
        "0000:80:00.0-cpx_nps1-3"
    ]


def test_without_a_unique_id_a_partition_is_found_by_its_pci_address(
    build: Build, make: Make
) -> None:
    tree = build(MI308, links=False)
    expected = [device.id for device in make(tree).discover()]
    for node in tree.nodes():
        path = tree.folder(node) / "properties"
        lines = [line for line in path.read_text().splitlines() if "unique_id" not in line]
        path.write_text("\n".join(lines))
    assert expected == [device.id for device in make(tree).discover()]
    assert 32 == len(expected)


def test_a_container_has_kfd_once_and_the_nodes_of_each_gpu(build: Build, make: Make) -> None:
    tree = build(MI210, links=False)
    plugin = make(tree)
    devices = list(plugin.discover())
    allocation = plugin.allocate(devices[:2])
    assert [
        ("/dev/kfd", "rw"),
        ("/dev/dri/card3", "rw"),
        ("/dev/dri/renderD130", "rw"),
        ("/dev/dri/card4", "rw"),
        ("/dev/dri/renderD131", "rw"),
    ] == [(node.container_path, node.permissions) for node in allocation.nodes]
    assert ({}, ()) == (allocation.envs, allocation.mounts)
    assert f"{tree.dev}/kfd" == allocation.nodes[0].host_path


def test_the_bmcs_screen_is_not_offered(build: Build, make: Make) -> None:
    tree = build(VEGA)
    names = {node.container_path for one in make(tree).discover() for node in one.nodes}
    assert (tree.dev / "dri/card0").exists()
    assert "/dev/dri/card0" not in names


def test_a_second_node_of_a_gpu_that_cannot_be_divided_means_nothing(
    build: Build, make: Make
) -> None:
    tree = build(VEGA)
    text = (tree.folder(tree.node(VEGA.addresses[0])) / "properties").read_text()
    copy = tree.kfd / "topology/nodes/2"
    copy.mkdir()
    (copy / "properties").write_text(text.replace("minor 128", "minor 129"))
    (device,) = make(tree).discover()
    assert ("0000:19:00.0", True) == (device.id, bool(device.health))


NONE = "include and exclude choose none of the {} that are here"


def test_a_gpu_without_a_driver_is_missed_among_others(build: Build, make: Make) -> None:
    """Such as one whose probe failed, or that its driver has given up since."""
    tree = build(MI210, links=False)
    plugin = make(tree)
    assert 8 == len([*plugin.discover()])
    assert [] == plugin.shortfalls
    gone, other, virtual, *_ = MI210.addresses
    for address in (gone, other, virtual):
        (tree.cards[address].folder / "driver").unlink()
    (tree.cards[other].folder / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    (tree.cards[virtual].folder / "physfn").symlink_to(tree.cards[gone].folder)
    for one in (plugin, make(tree)):
        assert 5 == len([*one.discover()])
        assert [f"{gone}: has no driver: dmesg | grep -i amdgpu"] == one.shortfalls
    excluding = make(tree, exclude=(gone,))
    assert 5 == len([*excluding.discover()])
    assert [] == excluding.shortfalls, "nobody wants it"


def test_a_choice_that_leaves_no_gpu_is_told(build: Build, make: Make) -> None:
    plugin = make(build(MI210, links=False), include=("74a1",))
    assert [] == [*plugin.discover()]
    assert [NONE.format(8)] == plugin.shortfalls
