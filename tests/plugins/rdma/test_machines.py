"""The plugin finds what the records of machines say."""

import json
from typing import Final

import pytest

from discovered import found, unhealthy
from one_piece.world import World
from rdma.machines import CONNECTX6, DGX_H100, E810, SAMPLE, Machine, Port
from rdma.tree import Build, ids, nodes
from virt_launcher import launch


def sriov(name: str = "nic", **selectors: object) -> dict[str, object]:
    """Return a configuration of the SR-IOV plugin with one resource."""
    return {"resourceList": [{"resourceName": name, "selectors": selectors}]}


def shared(**selectors: object) -> dict[str, object]:
    """Return a configuration of the RDMA shared plugin with one resource."""
    return {
        "configList": [{"resourceName": "hca", "rdmaHcaMax": 2, "selectors": selectors}],
    }


def test_without_configuration_each_physical_function_with_rdma_has_shares(build: Build) -> None:
    offered = ids(build().plugin())
    assert ["rdma/hca"] == list(offered)
    cards = ["0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0"]
    assert [f"{card}::{share}" for card in cards for share in range(100)] == offered["rdma/hca"]


def test_the_infiniband_cards_of_a_dgx_are_found(build: Build) -> None:
    plugin = build(DGX_H100).plugin(sriov(linkTypes=["infiniband"], isRdma=True))
    devices = dict(sorted(found(plugin).items()))
    buses = ["18", "40", "4f", "5e", "9a", "c0", "ce", "dc"]
    assert [f"0000:{bus}:00.0" for bus in buses] == list(devices)
    assert [0, 0, 0, 0, 1, 1, 1, 1] == [
        device.topology.numa_nodes[0] for device in devices.values() if device.topology
    ]
    assert [0, 3, 4, 5, 6, 9, 10, 11] == [
        int(str(device.attributes["rdma"]).removeprefix("mlx5_")) for device in devices.values()
    ]
    assert {} == unhealthy(plugin)


def test_the_gpu_behind_the_same_switch_is_named(build: Build) -> None:
    devices = found(build(DGX_H100).plugin(sriov(linkTypes=["infiniband"])))
    near = {
        *(("18", "1b"), ("40", "43"), ("4f", "52"), ("5e", "61")),
        *(("9a", "9d"), ("c0", "c3"), ("ce", "d1"), ("dc", "df")),
    }
    assert {f"0000:{nic}:00.0": f"0000:{gpu}:00.0" for nic, gpu in near} == {
        one: device.attributes["gpus"] for one, device in devices.items()
    }
    assert all("gpus" not in one.attributes for one in found(build().plugin()).values())


def test_the_virtual_functions_of_roce_cards_are_found_and_not_the_cards(build: Build) -> None:
    plugin = build(CONNECTX6).plugin(sriov(vendors=["15b3"], isRdma=True))
    expected = [f"0000:{bus}:00.{number}" for bus in ("05", "d2") for number in range(1, 5)]
    assert {"intel.com/nic": expected} == ids(plugin)
    given = nodes(plugin.allocate([found(plugin)["0000:d2:00.2"]]))
    assert [
        *("infiniband/uverbs7", "infiniband/issm7", "infiniband/umad7", "infiniband/rdma_cm"),
    ] == given


def test_an_e810_has_functions_of_three_kinds(build: Build) -> None:
    resources = [
        {
            "resourceName": name,
            "resourcePrefix": "openshift.io",
            "selectors": {
                "vendors": ["8086"],
                "devices": ["1889"],
                "drivers": [driver],
                "pfNames": [f"enp81s0f3#{numbers}"],
            },
        }
        for name, driver, numbers in (
            ("vran_netdevice", "iavf", "0-3"),
            ("vran_netdevice_fh", "iavf", "4-5"),
            ("vran_vfio", "vfio-pci", "6-7"),
        )
    ]
    plugin = build(E810).plugin({"resourceList": resources})
    offered = ids(plugin)
    assert [
        ("openshift.io/vran_netdevice", 4),
        ("openshift.io/vran_netdevice_fh", 2),
        ("openshift.io/vran_vfio", 2),
    ] == [(name, len(one)) for name, one in offered.items()]
    assert ["0000:51:0d.6", "0000:51:0d.7"] == offered["openshift.io/vran_vfio"]
    devices = found(plugin)
    assert [] == nodes(plugin.allocate([devices["0000:51:0d.0"]]))
    two = plugin.allocate([devices["0000:51:0d.6"], devices["0000:51:0d.7"]])
    assert ["vfio/vfio", "vfio/186", "vfio/187"] == nodes(two)
    assert "0000:51:0d.6,0000:51:0d.7" == two.envs["PCIDEVICE_OPENSHIFT_IO_VRAN_VFIO"]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (shared(vendors=["15b3"], linkTypes=["infiniband"]), "0000:af:00.0"),
        (shared(drivers=["ice"]), "0000:5e:00.0"),
        (shared(vendors=["15b3"], deviceIDs=["101e"]), "0000:3b:00.2,0000:3b:00.3"),
        (shared(ifNames=["ens3", "ibs2"]), "0000:5e:00.0,0000:af:00.0"),
        (
            {"configList": [{"resourceName": "hca", "rdmaHcaMax": 2, "devices": ["ens1f0np0"]}]},
            "0000:3b:00.0",
        ),
        (shared(vendors=["15b3"], linkTypes=["ether"], drivers=["ice"]), ""),
    ],
)
def test_a_shared_resource_has_what_its_selectors_say(
    build: Build, configuration: object, expected: str
) -> None:
    devices = found(build().plugin(configuration))
    assert (["hca::0", "hca::1"] if expected else []) == list(devices)
    assert {expected} - {""} == {device.attributes["pci"] for device in devices.values()}


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ({"pfNames": ["ens1f0np0#2-3"], "drivers": ["vfio-pci"]}, "3b:00.4 3b:00.5"),
        ({"vendors": ["15b3"]}, "3b:00.2 3b:00.3 3b:00.4 3b:00.5 af:00.0"),
        ({"pfNames": ["ENS1F0NP0#0,2-3"]}, "3b:00.2 3b:00.4 3b:00.5"),
        ({"pfNames": ["ens1f0np0#0-1", "ens1f0np0#3"]}, "3b:00.2 3b:00.3 3b:00.5"),
        ({"pfNames": ["ibs2"]}, ""),
        ({"linkTypes": ["ether"], "drivers": ["vfio-pci"]}, "3b:00.4 3b:00.5"),
        ({"rootDevices": ["0000:3b:00.0#1"]}, "3b:00.3"),
        ({"rootDevices": ["0000:af:00.0", "0000:3b:00.0#0"]}, "3b:00.2"),
        ({"pciAddresses": ["0000:3B:00.2", "0000:5e:00.0"]}, "3b:00.2 5e:00.0"),
        ({"linkTypes": ["infiniband"]}, "af:00.0"),
        ({"isRdma": True, "isVirtual": True}, "3b:00.2 3b:00.3"),
        ({"isVirtual": False}, "5e:00.0 af:00.0"),
        ({"acpiIndexes": ["7"]}, "5e:00.0"),
        ({"ifNames": ["ens1f0v1"]}, "3b:00.3"),
        ({}, "3b:00.2 3b:00.3 3b:00.4 3b:00.5 5e:00.0 af:00.0"),
        ([{"drivers": ["ice"]}, {"linkTypes": ["infiniband"]}], "5e:00.0 af:00.0"),
    ],
)
def test_a_resource_of_functions_has_what_its_selectors_say(
    build: Build, selectors: object, expected: str
) -> None:
    tree = build()
    (tree.folders["0000:5e:00.0"] / "acpi_index").write_text("7\n")
    configuration = {"resourceList": [{"resourceName": "nic", "selectors": selectors}]}
    assert [f"0000:{one}" for one in expected.split()] == list(found(tree.plugin(configuration)))


def test_a_function_is_in_the_first_resource_that_matches(build: Build) -> None:
    configuration = {
        "resourceList": [
            {"resourceName": "first", "selectors": {"pfNames": ["ens1f0np0#0-1"]}},
            {"resourceName": "rest", "selectors": {"vendors": ["15b3"], "isVirtual": True}},
        ],
        "configList": [
            {"resourceName": "hca", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"]}},
        ],
    }
    plugin = build().plugin(configuration)
    assert {
        "intel.com/first": ["0000:3b:00.2", "0000:3b:00.3"],
        "intel.com/rest": ["0000:3b:00.4", "0000:3b:00.5"],
        "rdma/hca": ["hca::0"],
    } == ids(plugin)


def test_a_container_of_a_shared_resource_has_all_of_it(build: Build) -> None:
    plugin = build().plugin(shared(vendors=["15b3"], linkTypes=["infiniband", "ether"]))
    allocation = plugin.allocate([found(plugin)["hca::1"]])
    assert 4 == sum("uverbs" in name for name in nodes(allocation))
    assert 1 == nodes(allocation).count("infiniband/rdma_cm")
    assert {} == allocation.envs


def test_a_card_without_management_datagrams_has_verbs(build: Build) -> None:
    plugin = build().plugin(shared(drivers=["ice"]))
    given = nodes(plugin.allocate([found(plugin)["hca::0"]]))
    assert ["infiniband/uverbs4", "infiniband/rdma_cm"] == given


def test_the_variables_are_those_of_the_sriov_plugin(build: Build) -> None:
    configuration = {
        "resourceList": [
            {
                "resourceName": "roce-vfs",
                "selectors": {"pfNames": ["ens1f0np0#0-1"], "isRdma": True, "needVhostNet": True},
                "additionalInfo": {"*": {"rack": "7"}, "0000:3b:00.3": {"rack": "8"}},
            }
        ]
    }
    tree = build()
    tree.hardware.node("vhost-net")
    tree.hardware.node("net/tun")
    plugin = tree.plugin(configuration)
    allocation = plugin.allocate(list(found(plugin).values()))
    assert "0000:3b:00.2,0000:3b:00.3" == allocation.envs["PCIDEVICE_INTEL_COM_ROCE-VFS"]
    info = json.loads(allocation.envs["PCIDEVICE_INTEL_COM_ROCE-VFS_INFO"])
    assert {
        "generic": {"deviceID": "0000:3b:00.3"},
        "rdma": {
            "uverbs": "/dev/infiniband/uverbs2",
            "umad": "/dev/infiniband/umad2",
            "issm": "/dev/infiniband/issm2",
            "rdma_cm": "/dev/infiniband/rdma_cm",
            "rdma_dev": "mlx5_3",
        },
        "vhost": {"net-mount": "/dev/vhost-net", "tun-mount": "/dev/net/tun"},
        "extra": {"rack": "8"},
    } == info["0000:3b:00.3"]
    assert {"rack": "7"} == info["0000:3b:00.2"]["extra"]
    assert {"rw"} == {node.permissions for node in allocation.nodes}


def test_a_kernel_without_nodes_of_groups_has_that_of_the_function(build: Build) -> None:
    tree = build()
    tree.hardware.unplug("virtual/vfio/42")
    tree.hardware.vfio("noiommu-42")
    plugin = tree.plugin(sriov(pciAddresses=["0000:3b:00.4"]))
    # Without an IOMMU the node has the name that programs open.
    (_, node) = next(iter(found(plugin).values())).nodes
    assert (
        f"{tree.dev}/vfio/noiommu-42 as /dev/vfio/42"
        == f"{node.host_path} as {node.container_path}"
    )
    tree.hardware.unplug("virtual/vfio/noiommu-42")
    tree.hardware.vfio_device(tree.folders["0000:3b:00.4"], 0)
    assert {} == unhealthy(plugin)
    allocation = plugin.allocate(list(found(plugin).values()))
    assert ["iommu", "vfio/devices/vfio0"] == nodes(allocation)
    info = json.loads(allocation.envs["PCIDEVICE_INTEL_COM_NIC_INFO"])["0000:3b:00.4"]
    assert {"mount": "/dev/iommu", "dev-mount": "/dev/vfio/devices/vfio0"} == info["vfio"]


PORTS: Final = tuple(
    Port(f"0000:3c:00.{number}", "15b3:101d", "vfio-pci", group="7") for number in range(3)
)
LONE: Final = Port("0000:3d:00.0", "8086:1533", "vfio-pci", group="8")


def test_functions_of_one_iommu_group_are_one_device_with_one_address_for_a_machine(
    build: Build,
) -> None:
    plugin = build(Machine((*PORTS, LONE))).plugin(sriov())
    (card, lone) = devices = [*found(plugin).values()]
    assert (["0000:3c:00.0", "0000:3d:00.0"], {}) == ([card.id, lone.id], unhealthy(plugin))
    assert ["vfio/vfio", "vfio/7"] == nodes(plugin.allocate([card]))
    assert {"iommu_group/0000:3c:00.0", *(f"pci/{one.address}" for one in PORTS)} <= {
        *card.hardware
    }
    envs = plugin.allocate(devices).envs
    name = "INTEL_COM_NIC"
    all_of_them = ",".join(one.address for one in (*PORTS, LONE))
    assert (all_of_them, f"{card.id},{lone.id}", "0000:3c:00.1,0000:3c:00.2") == (
        envs[f"PCIDEVICE_{name}"],
        envs[f"PCI_RESOURCE_{name}"],
        envs[f"PCI_RESOURCE_{name}-GROUP"],
    )
    wanted = [
        *({"name": name, "deviceName": "intel.com/nic"} for name in ("one", "two")),
        {"name": "port", "deviceName": "intel.com/nic-group"},
    ]
    expected = {"one": card.id, "two": lone.id, "port": "0000:3c:00.1"}
    assert expected == launch(wanted, envs)
    assert f"PCI_RESOURCE_{name}-GROUP" not in plugin.allocate([lone]).envs


def test_a_group_is_offered_in_one_resource_whichever_functions_others_select(
    build: Build,
) -> None:
    tree = build(Machine((*PORTS, LONE)))
    entries = [
        {"resourceName": name, "selectors": {"pciAddresses": addresses}}
        for name, addresses in (
            ("b", [PORTS[1].address]),
            ("a", [PORTS[0].address, PORTS[2].address, LONE.address]),
        )
    ]
    plugin = tree.plugin({"resourceList": entries})
    reason = (
        "IOMMU group 7 has one holder, and 0000:3c:00.1 of it is a device of intel.com/b: select "
        "both in one resource"
    )
    assert {"0000:3c:00.0": reason} == unhealthy(plugin)
    assert ["0000:3c:00.1", "0000:3c:00.0", LONE.address] == [*found(plugin)]


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_group_stays_with_its_pod_if_functions_join_and_leave_it(
    build: Build, first: str
) -> None:
    tree, world = build(Machine(PORTS[1:])), World()
    selectors = {"a": {"pciAddresses": [PORTS[0].address]}, "b": {"drivers": ["vfio-pci"]}, "c": {}}
    names = [name for name in selectors if name >= first]
    entries = [{"resourceName": name, "selectors": selectors[name]} for name in names]
    plugin = tree.plugin({"resourceList": entries})
    world.look(plugin)
    world.pods(("intel.com/b", PORTS[1].address))
    tree.add(PORTS[0])  # the first function, after which a device is called
    world.look(plugin)
    assert [PORTS[0].address] == [*world.closed(f"intel.com/{first}")]
    tree.remove(PORTS[0].address)
    tree.bind(PORTS[2].address, "mlx5_core")
    world.look(plugin)
    assert [PORTS[2].address] == [*world.closed("intel.com/c")]


def test_nodes_of_iommufd_are_given_beside_those_of_a_group(build: Build) -> None:
    tree = build(Machine((LONE,)))
    tree.hardware.vfio_device(tree.folders[LONE.address], 4)
    plugin = tree.plugin(sriov())
    allocation = plugin.allocate(list(found(plugin).values()))
    assert ["vfio/vfio", "vfio/8", "iommu", "vfio/devices/vfio4"] == nodes(allocation)
    info = json.loads(allocation.envs["PCIDEVICE_INTEL_COM_NIC_INFO"])[LONE.address]
    assert {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/8"} == info["vfio"]


def test_a_uio_driver_has_its_node(build: Build) -> None:
    tree = build()
    tree.bind("0000:3b:00.4", "uio_pci_generic")
    plugin = tree.plugin(sriov(pciAddresses=["0000:3b:00.4"]))
    assert {"0000:3b:00.4": "its driver has made no node yet"} == unhealthy(plugin)
    tree.hardware.device("pci0000:3b/0000:3b:00.4/uio/uio3", "uio", node="uio3")
    allocation = plugin.allocate(list(found(plugin).values()))
    assert ["uio3"] == nodes(allocation)
    info = json.loads(allocation.envs["PCIDEVICE_INTEL_COM_NIC_INFO"])
    assert {"mount": "/dev/uio3"} == info["0000:3b:00.4"]["uio"]


def test_accelerators_are_another_class(build: Build) -> None:
    tree = build()
    tree.hardware.pci("0000:b1:00.0", "8086:0d5d", "120001", driver="vfio-pci", group="9")
    tree.hardware.node("vfio/9")
    entry: dict[str, object] = {"resourceName": "fec", "deviceType": "accelerator"}
    configuration = {"resourceList": [{**entry, "selectors": {"devices": ["0d5d"]}}]}
    assert {"intel.com/fec": ["0000:b1:00.0"]} == ids(tree.plugin(configuration))
    configuration["resourceList"][0]["excludeTopology"] = True
    assert {None} == {one.topology for one in found(tree.plugin(configuration)).values()}
    assert {} == ids(tree.plugin(sriov(devices=["0d5d"])))


@pytest.mark.parametrize("machine", [CONNECTX6, DGX_H100, E810, SAMPLE])
def test_the_interface_of_the_default_route_is_given_to_nobody(
    build: Build, machine: object
) -> None:
    tree = build(machine)
    plugin = tree.plugin(sriov(isVirtual=False))
    before = set(found(plugin))
    (busy,) = (a for a in tree.folders if tree.machine.default_route in tree.names(a))
    assert busy not in before
    tree.route("")
    assert {busy} == set(found(plugin)) - before


def test_an_interface_below_a_bond_with_the_default_route_is_given_to_nobody(build: Build) -> None:
    tree = build()
    for name, below in (("br0", "bond0"), ("bond0", "ens3")):
        folder = tree.sys / "devices/virtual/net" / name
        folder.mkdir(parents=True)
        (folder / f"lower_{below}").symlink_to(tree.sys / "class/net" / below)
        (tree.sys / "class/net" / name).symlink_to(folder)
    tree.route("br0")
    assert "0000:5e:00.0" not in found(tree.plugin(sriov()))
    assert "0000:18:00.0" in found(tree.plugin(sriov()))
    tree.route("")
    lines = [f"{'0' * 32} 00 {'0' * 32} 00 {'fe80':0<32} 00000400 1 0 00000003     ens3"]
    lines.append(f"{'fe80':0<32} 40 {'0' * 32} 00 {'0' * 32} 00000100 1 0 00000001     eno1")
    (tree.net / "ipv6_route").write_text("\n".join(lines))
    assert "0000:5e:00.0" not in found(tree.plugin(sriov()))
    assert "0000:18:00.0" in found(tree.plugin(sriov()))


def test_a_virtual_function_is_none_of_its_card_though_only_one_of_the_two_says_so(
    build: Build,
) -> None:
    tree = build()
    before = found(tree.plugin(sriov(isVirtual=False)))
    (tree.folders["0000:3b:00.2"] / "physfn").unlink()
    assert before == found(tree.plugin(sriov(isVirtual=False)))


def test_a_link_to_another_functions_nodes_gives_none_of_them(build: Build) -> None:
    tree = build()
    plugin = tree.plugin(sriov(isRdma=True))
    before = found(plugin)
    first, second = (tree.folders[f"0000:3b:00.{n}"] / "infiniband_verbs" for n in (2, 3))
    (own,), (other,) = first.iterdir(), second.iterdir()
    own.rename(first.parent / "aside")
    own.symlink_to(other)
    after = found(plugin)
    assert before["0000:3b:00.3"] == after["0000:3b:00.3"]
    assert "mlx5_2 has no verbs: load ib_uverbs" == after["0000:3b:00.2"].health.reason
