"""Functions that come, go, and are renamed; and those whose interface a pod has."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._config.loading import load
from deviceplugin_rdma import RdmaPlugin, RdmaSettings
from deviceplugin_testing.fixture import Kubelet
from discovered import found, unhealthy
from rdma.machines import CONNECTX6, DGX_H100
from rdma.tree import Build, RdmaTree, ids

FIRST, SECOND = "0000:3b:00.2", "0000:3b:00.3"
IB = "0000:af:00.0"
NIC = {"resourceList": [{"resourceName": "nic"}]}
BY_NAME = {
    "resourceList": [
        {"resourceName": "ens3", "selectors": {"ifNames": ["ens3"]}},
        {"resourceName": "ib", "selectors": {"linkTypes": ["infiniband"]}},
        {"resourceName": "vfs", "selectors": {"pfNames": ["ens1f0np0"]}},
    ]
}


def test_a_function_that_a_pod_has_stays_in_its_resource(tree: RdmaTree) -> None:
    plugin = tree.plugin(BY_NAME)
    before = ids(plugin)
    for address in tree.folders:
        tree.move_to_pod(address) if address != "0000:3b:00.0" else None
    assert before == ids(plugin)
    assert before == ids(tree.plugin(BY_NAME))  # a new process remembers
    (tree.root / "names.json").write_text('{"version": 1, "functions": {"a": 1}}')
    assert before != ids(tree.plugin(BY_NAME))  # unless the file is damaged


def test_an_interface_that_is_back_under_another_name_is_not_remembered(tree: RdmaTree) -> None:
    plugin = tree.plugin(BY_NAME)
    assert ["0000:5e:00.0"] == ids(plugin)["intel.com/ens3"]
    tree.rename("0000:5e:00.0", "ens4")
    assert "intel.com/ens3" not in ids(plugin)
    tree.rename("0000:5e:00.0", "ens3")
    assert ["0000:5e:00.0"] == ids(plugin)["intel.com/ens3"]
    tree.move_to_pod("0000:5e:00.0")
    (tree.folders["0000:5e:00.0"] / "net").rmdir()  # its driver is bound anew
    assert "intel.com/ens3" not in ids(plugin)


def wrong(**keys: object) -> dict[str, object]:
    return {"resourceName": "wrong", "shares": "many", **keys}


def lenient(tree: RdmaTree, **lists: object) -> RdmaPlugin:
    """Return a plugin that skips wrong entries of a file."""
    file = tree.root / "lenient.json"
    file.write_text(json.dumps(lists))
    flags = {"on-invalid-entry": "skip"}
    settings = load(RdmaSettings, flags=flags, file=file, environ={}, lenient=True)
    with pytest.raises(dp.ConfigError):
        RdmaSettings.of_file(file)
    return tree.plugin(resources=settings.resources)


@pytest.mark.parametrize(
    ("entry", "reserved"),
    [
        (wrong(selectors={"linkTypes": ["infiniband"]}), {IB}),
        (wrong(selectors=[{"linkTypes": ["infiniband"], "vendors": ["x"]}]), {IB}),
        (wrong(selectors=[{"LinkTypes": ["infiniband"], "vendor": "15b3"}]), {IB}),
        (wrong(linkTypes=["infiniband"]), {IB}),
        (wrong(deviceType="netDevice", selectors={"linkTypes": ["infiniband"]}), {IB}),
        (wrong(deviceType="disk", selectors={"linkTypes": ["infiniband"]}), {IB}),
        (wrong(deviceType="accelerator", selectors={"linkTypes": ["infiniband"]}), set[str]()),
        ({"resourceName": "sf", "selectors": {"auxTypes": ["sf"]}}, set[str]()),
        (wrong(deviceType="auxNetDevice", selectors={"isRdma": True}), set[str]()),
        (
            {
                "resourceName": "x",
                "deviceType": "netDevice",
                "selectors": {"auxTypes": ["sf"], "linkTypes": ["infiniband"]},
            },
            {IB},
        ),
        (
            {
                "resourceName": "x",
                "selectors": {"vdpaType": "vhost", "isRdma": True, "linkTypes": ["infiniband"]},
            },
            {IB},
        ),
        (wrong(selectors=[{"vendors": "x"}, 7]), set[str]()),
        (wrong(), set[str]()),
        (7, set[str]()),
    ],
)
def test_a_wrong_entry_reserves_what_its_selectors_may_match(
    tree: RdmaTree, entry: object, reserved: set[str]
) -> None:
    whole = {*ids(tree.plugin(NIC))["intel.com/nic"]}
    plugin = lenient(tree, resourceList=[entry, *NIC["resourceList"]])
    left = ids(plugin)
    assert {"intel.com/nic"} == left.keys()
    assert reserved == whole - {*left["intel.com/nic"]}
    (problem,) = plugin.invalid_entries
    assert "lenient.json:1: resourceList[0]" in problem
    assert [] == plugin.shortfalls


def test_an_iommu_group_of_a_wrong_entry_is_given_to_no_other(tree: RdmaTree) -> None:
    one, other = "0000:3b:00.4", "0000:3b:00.5"
    group = tree.sys / "kernel/iommu_groups/42"
    (group / "devices" / other).symlink_to(tree.folders[other])
    (tree.folders[other] / "iommu_group").unlink()
    (tree.folders[other] / "iommu_group").symlink_to(group)
    entry = wrong(selectors={"pciAddresses": [one]})
    rest = {"resourceName": "rest", "selectors": {"drivers": ["vfio-pci"]}}
    reason = (
        f"IOMMU group 42 has one holder, and {one} of it is a device of intel.com/'wrong' "
        "(invalid entry): select both in one resource"
    )
    assert {other: reason} == unhealthy(lenient(tree, resourceList=[entry, rest]))
    assert {} == unhealthy(lenient(tree, resourceList=[rest, entry]))


def test_a_wrong_entry_of_functions_that_are_shared_reserves_none(tree: RdmaTree) -> None:
    shared = {"resourceName": "a-b", "selectors": {"vendors": ["15b3"]}}
    assert ids(tree.plugin(NIC)) == ids(lenient(tree, configList=[shared], **NIC))


def test_functions_that_are_created_later_are_offered(tree: RdmaTree) -> None:
    port = tree.machine.ports[0]
    for number in range(4):
        tree.destroy(port, number)
    plugin = tree.plugin(NIC)
    assert "0000:3b:00.0" in found(plugin)
    tree.create(port, 1)
    devices = found(plugin)
    assert (True, False) == (SECOND in devices, "0000:3b:00.0" in devices)
    tree.create(port, 0)
    assert {FIRST, SECOND} < set(found(plugin))


def test_representors_do_not_name_a_card(tree: RdmaTree) -> None:
    for number in range(4):
        tree.interface("0000:3b:00.0", f"a{number}", port_name=f"pf0vf{number}")
    devices = found(tree.plugin(BY_NAME))
    assert FIRST in devices
    names = {"resourceList": [{"resourceName": "nic", "selectors": {"pfNames": ["a0"]}}]}
    assert {} == found(tree.plugin(names))


def test_a_function_without_a_driver_is_not_offered(tree: RdmaTree) -> None:
    plugin = tree.plugin(NIC)
    tree.bind(FIRST, "")
    assert FIRST not in found(plugin)
    tree.bind(FIRST, "vfio-pci")
    assert not found(plugin)[FIRST].health  # it has no group here
    (tree.folders["0000:3b:00.0"] / "sriov_numvfs").write_text("many\n")
    assert "0000:3b:00.0" not in found(plugin)


@pytest.mark.parametrize("value", [[], None])
def test_a_list_that_became_empty_takes_all_functions_back(
    tree: RdmaTree, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    assert found(tree.plugin(NIC))
    assert found(tree.plugin({}))  # the default
    assert {} == found(tree.plugin({"resourceList": value}))
    assert ["list of resources is empty"] == [one.message for one in caplog.records]


def test_resources_that_share_variables_are_named_at_the_start(
    tree: RdmaTree, caplog: pytest.LogCaptureFixture
) -> None:
    names = (("", "nic"), ("intel_com", "nic"), ("Intel.com", "NIC"), ("", "other"))
    entries = [{"resourcePrefix": prefix, "resourceName": name} for prefix, name in names]
    shared = {"configList": [{"resourceName": "nic", "selectors": {"vendors": ["15b3"]}}]}
    tree.plugin({"resourceList": entries, **shared}, resource_prefix="intel.com")
    (record,) = caplog.records
    assert ("resources share variables", "intel.com/nic, intel_com/nic, Intel.com/NIC") == (
        record.message,
        vars(record)["resources"],
    )


def test_device_information_is_there_for_multus(tree: RdmaTree, kubelet: Kubelet) -> None:
    rdma = {"resourceName": "rdma", "selectors": {"isRdma": True, "isVirtual": True}}
    shared = {"resourceName": "hca", "shares": 2}
    plugin = tree.plugin({"resourceList": [rdma, shared]})
    folder = tree.root / "devinfo"
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
    tree: RdmaTree, caplog: pytest.LogCaptureFixture
) -> None:
    (tree.root / "devinfo").write_text("")
    for folder in (tree.root / "devinfo", None):
        plugin = tree.plugin(NIC, devinfo_dir=folder)
        found(plugin)
        plugin.start("intel.com/nic")
        found(plugin)
    assert ["device information not written"] == caplog.messages


def test_routes_that_cannot_be_read_are_said_once(
    tree: RdmaTree, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = tree.plugin(NIC)
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
    ("kind", "keys"),
    [("resourceList", {}), ("resourceList", {"shares": 9}), ("configList", {"rdmaHcaMax": 9})],
)
def test_a_resource_that_no_function_is_for_is_told(
    tree: RdmaTree, kind: str, keys: dict[str, int]
) -> None:
    entry = {"resourceName": "x", "selectors": {"vendors": ["9999"]}, **keys}
    plugin = tree.plugin({kind: [entry]})
    assert {} == ids(plugin)
    (told,) = plugin.shortfalls
    assert "/x has no device: no function that is free" in told
    plugin = tree.plugin()
    assert {} != ids(plugin)
    assert [] == plugin.shortfalls


A, B = "0000:05:00", "0000:d2:00"


@pytest.fixture
def prefer(build: Build) -> Callable[..., list[str]]:
    """Return what asks for virtual functions: of which are free, how many, and which must be in."""
    tree = build(CONNECTX6)

    def preferred(free: list[str], size: int, *required: str, **settings: Any) -> list[str]:
        entry = {"resourceName": "vf", "selectors": {"isVirtual": True}}
        plugin = tree.plugin({"resourceList": [entry]}, **settings)
        devices = found(plugin)
        needed = [devices[one] for one in required]
        return [one.id for one in plugin.prefer([devices[one] for one in free], needed, size)]

    return preferred


def vfs(card: str, *numbers: int) -> list[str]:
    return [f"{card}.{number}" for number in numbers]


def test_functions_are_of_one_numa_node(prefer: Callable[..., list[str]]) -> None:
    free = [*vfs(A, 4), *vfs(B, 1, 2)]
    assert vfs(B, 1, 2) == prefer(free, 2)
    assert free == prefer(free, 3)
    most = [*vfs(A, 1, 2, 3, 4), *vfs(B, 1, 2)]
    assert vfs(B, 1, 2) == prefer(most, 2, f"{B}.2"), "that of what is required"


@pytest.mark.parametrize(("policy", "card"), [("packed", A), ("spread", B)])
def test_the_next_function_is_of_the_card_that_the_policy_says(
    prefer: Callable[..., list[str]], policy: str, card: str
) -> None:
    (chosen,) = prefer([*vfs(A, 3, 4), *vfs(B, 1, 2, 3)], 1, policy=policy)
    assert chosen.startswith(card)


def test_shares_are_of_different_cards(build: Build) -> None:
    shared = {"resourceList": [{"resourceName": "hca", "shares": 3}]}
    plugin = build(DGX_H100).plugin(shared)
    devices = found(plugin)
    chosen = list(plugin.prefer(list(devices.values()), [], 4))
    assert 4 == len({device.id.partition("::")[0] for device in chosen})
    assert 1 == len({device.topology for device in chosen})
