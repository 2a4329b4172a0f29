"""Functions that come, go, and are renamed; and those whose interface a pod has."""

import json
from pathlib import Path

import pytest

from deviceplugin_testing.fixture import Kubelet
from discovered import found
from rdma.machines import CONNECTX6, DGX_H100
from rdma.tree import Build, Make, RdmaTree, ids

FIRST, SECOND = "0000:3b:00.2", "0000:3b:00.3"
BY_NAME = {
    "resourceList": [
        {"resourceName": "ens3", "selectors": {"ifNames": ["ens3"]}},
        {"resourceName": "ib", "selectors": {"linkTypes": ["infiniband"]}},
        {"resourceName": "vfs", "selectors": {"pfNames": ["ens1f0np0"]}},
    ]
}


def test_a_function_that_a_pod_has_stays_in_its_resource(
    tree: RdmaTree, make: Make, tmp_path: Path
) -> None:
    plugin = make(tree, BY_NAME)
    before = ids(plugin)
    for address in tree.folders:
        tree.move_to_pod(address) if address != "0000:3b:00.0" else None
    assert before == ids(plugin)
    assert before == ids(make(tree, BY_NAME))  # a new process remembers
    (tmp_path / "names.json").write_text('{"version": 1, "functions": {"a": 1}}')
    assert before != ids(make(tree, BY_NAME))  # unless the file is damaged


def test_an_interface_that_is_back_under_another_name_is_not_remembered(
    tree: RdmaTree, make: Make
) -> None:
    plugin = make(tree, BY_NAME)
    assert ["0000:5e:00.0"] == ids(plugin)["intel.com/ens3"]
    tree.rename("0000:5e:00.0", "ens4")
    assert "intel.com/ens3" not in ids(plugin)
    tree.rename("0000:5e:00.0", "ens3")
    assert ["0000:5e:00.0"] == ids(plugin)["intel.com/ens3"]
    tree.move_to_pod("0000:5e:00.0")
    (tree.folders["0000:5e:00.0"] / "net").rmdir()  # its driver is bound anew
    assert "intel.com/ens3" not in ids(plugin)


def test_functions_that_are_created_later_are_offered(tree: RdmaTree, make: Make) -> None:
    port = tree.machine.ports[0]
    for number in range(4):
        tree.destroy(port, number)
    plugin = make(tree, {"resourceList": [{"resourceName": "nic"}]})
    assert "0000:3b:00.0" in found(plugin)
    tree.create(port, 1)
    devices = found(plugin)
    assert (True, False) == (SECOND in devices, "0000:3b:00.0" in devices)
    tree.create(port, 0)
    assert {FIRST, SECOND} < set(found(plugin))


def test_representors_do_not_name_a_card(tree: RdmaTree, make: Make) -> None:
    for number in range(4):
        tree.interface("0000:3b:00.0", f"a{number}", port_name=f"pf0vf{number}")
    devices = found(make(tree, BY_NAME))
    assert FIRST in devices
    names = {"resourceList": [{"resourceName": "nic", "selectors": {"pfNames": ["a0"]}}]}
    assert {} == found(make(tree, names))


def test_a_function_without_a_driver_is_not_offered(tree: RdmaTree, make: Make) -> None:
    plugin = make(tree, {"resourceList": [{"resourceName": "nic"}]})
    tree.bind(FIRST, "")
    assert FIRST not in found(plugin)
    tree.bind(FIRST, "vfio-pci")
    assert not found(plugin)[FIRST].health  # it has no group here
    (tree.folders["0000:3b:00.0"] / "sriov_numvfs").write_text("many\n")
    assert "0000:3b:00.0" not in found(plugin)


@pytest.mark.parametrize("value", [[], None])
def test_a_list_that_became_empty_takes_all_functions_back(
    tree: RdmaTree, make: Make, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    assert found(make(tree, {"resourceList": [{"resourceName": "nic"}]}))
    assert found(make(tree, {}))  # the default
    assert {} == found(make(tree, {"resourceList": value}))
    assert ["list of resources is empty"] == [one.message for one in caplog.records]


def test_device_information_is_there_for_multus(
    tree: RdmaTree, make: Make, tmp_path: Path, kubelet: Kubelet
) -> None:
    rdma = {"resourceName": "rdma", "selectors": {"isRdma": True, "isVirtual": True}}
    shared = {"resourceName": "hca", "shares": 2}
    plugin = make(tree, {"resourceList": [rdma, shared]})
    folder = tmp_path / "devinfo"
    found(plugin)
    assert not folder.exists()  # nobody has been offered anything
    with kubelet.running(plugin) as node:
        node.wait_for("intel.com/rdma", {FIRST, SECOND})
        path = folder / f"intel.com-rdma-{FIRST}-device.json"
        assert {
            "type": "pci",
            "version": "1.1.0",
            "pci": {"pci-address": FIRST, "rdma-device": "mlx5_2"},
        } == json.loads(path.read_text())
        assert [path.name, path.name.replace(FIRST, SECOND)] == sorted(
            one.name for one in folder.iterdir()
        )
        other = folder / "intel.com-rdma-other-0000:3b:00.9-device.json"
        other.write_text("{}")
        tree.destroy(tree.machine.ports[0], 0)
        found(plugin)
        assert (False, True) == (path.exists(), other.exists())


def test_device_information_that_cannot_be_written_is_said_once(
    tree: RdmaTree, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "devinfo").write_text("")
    plugin = make(tree, {"resourceList": [{"resourceName": "nic"}]})
    found(plugin)
    plugin.start("intel.com/nic")
    found(plugin)
    assert ["device information not written"] == caplog.messages
    silent = make(tree, {"resourceList": [{"resourceName": "nic"}]}, devinfo_dir=None)
    silent.start("intel.com/nic")
    assert ["device information not written"] == caplog.messages


def test_routes_that_cannot_be_read_are_said_once(
    tree: RdmaTree, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = make(tree, {"resourceList": [{"resourceName": "nic"}]})
    (tree.net / "route").rename(tree.net / "old")
    found(plugin)
    assert "0000:18:00.0" in found(plugin)
    assert ["default route unknown"] == caplog.messages
    (tree.net / "old").rename(tree.net / "route")
    assert "0000:18:00.0" not in found(plugin)
    for odd in (b"\xff\n\xff\n", b"Iface\neno1 00000000\n"):
        (tree.net / "route").write_bytes(odd)
        assert "0000:18:00.0" not in found(plugin)  # it had the default route


@pytest.mark.parametrize(
    "configuration",
    [
        {"resourceList": [{"resourceName": "x", "selectors": {"ifNames": ["ens99"]}}]},
        {
            "configList": [
                {"resourceName": "x", "rdmaHcaMax": 9, "selectors": {"vendors": ["9999"]}}
            ]
        },
        {"resourceList": [{"resourceName": "x", "shares": 9, "selectors": {"vendors": ["9999"]}}]},
    ],
)
def test_a_resource_that_no_function_is_for_is_told(
    tree: RdmaTree, make: Make, configuration: dict[str, list[dict[str, object]]]
) -> None:
    (entries,) = configuration.values()
    (entry,) = entries
    plugin = make(tree, configuration)
    assert {} == ids(plugin)
    (told,) = plugin.shortfalls
    assert f"/{entry['resourceName']} has no device: no function that is free" in told
    plugin = make(tree)
    assert {} != ids(plugin)
    assert [] == plugin.shortfalls


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
