"""Sub-functions and vDPA devices: who each is, what a pod gets, and that nothing is given twice."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin.checks import Node
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_rdma import RdmaPlugin, doctor
from deviceplugin_testing.fixture import FailingKernel, Kubelet
from discovered import found, unhealthy
from one_piece.world import World
from rdma.divided import DividedTree
from rdma.machines import SAMPLE
from rdma.tree import ids, nodes

PF, ICE, VF = "0000:3b:00.0", "0000:5e:00.0", "0000:3b:00.2"
A, B = f"{PF}-sf88", f"{PF}-sf90"
SF = "intel.com/sf"


def subs(**keys: object) -> dict[str, list[dict[str, object]]]:
    """Return a configuration with a resource of sub-functions."""
    return {"resourceList": [{"resourceName": "sf", "deviceType": "auxNetDevice", **keys}]}


RDMA = subs(selectors={"isRdma": True})


def vdpa(kind: str, **selectors: object) -> dict[str, list[dict[str, object]]]:
    """Return a configuration with a resource of vDPA devices, and one of the other functions."""
    first: dict[str, object] = {
        "resourceName": "vdpa",
        "selectors": {"vdpaType": kind, **selectors},
    }
    return {"resourceList": [first, {"resourceName": "vf", "selectors": {"isVirtual": True}}]}


@pytest.fixture
def tree(tmp_path: Path) -> DividedTree:
    return DividedTree(tmp_path / "node", SAMPLE)


def told(plugin: RdmaPlugin, *chosen: str) -> tuple[str, dict[str, Any]]:
    """Return the two variables of a container with these devices."""
    devices = found(plugin)
    envs = plugin.allocate([devices[one] for one in chosen]).envs
    first, second = (envs[key] for key in sorted(envs))
    return first, json.loads(second)


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([{"vendors": ["15b3"], "devices": ["101d"], "pfNames": ["ens1f0np0#1-89"]}], [A]),
        ({"pfNames": ["ENS1F0NP0"], "auxTypes": ["sf"], "drivers": ["mlx5_core"]}, [A, B]),
        ({"rootDevices": [f"{PF}#0,90-4294967295"]}, [B]),
        ({"pciAddresses": [ICE]}, [f"{ICE}-sf88"]),
        ({"linkTypes": ["ether"], "isRdma": True}, [A]),
        ({"linkTypes": ["infiniband"]}, []),
        ({"ifNames": ["enp59s0f0s90"]}, [B]),
        ({}, [A, B, f"{ICE}-sf88"]),
    ],
)
def test_a_resource_of_sub_functions_has_what_its_selectors_say(
    tree: DividedTree, selectors: object, expected: list[str]
) -> None:
    tree.sub(PF, 88, 4, interface="enp59s0f0s88", rdma="mlx5_9")
    tree.sub(PF, 90, 2, interface="enp59s0f0s90")
    tree.sub(ICE, 88, 3, interface="enp94s0s88")
    assert expected == list(found(tree.plugin(subs(selectors=selectors))))


def test_a_container_gets_what_the_peer_gives_and_the_names_of_now(tree: DividedTree) -> None:
    tree.sub(PF, 88, 4, interface="enp59s0f0s88", rdma="mlx5_9")
    tree.sub(PF, 90, 2, interface="enp59s0f0s90", rdma="mlx5_7")
    extra = {"*": {"rack": "7"}, PF: {"port": "1"}, B: {"port": "2"}}
    plugin = tree.plugin(subs(selectors={"isRdma": True}, additionalInfo=extra))
    devices = found(plugin)
    expected = {"pci": PF, "driver": "mlx5_core", "auxiliary": "mlx5_core.sf.4", "sfnum": 88}
    named = {"interface": "enp59s0f0s88", "rdma": "mlx5_9", "physical": PF}
    assert expected | named == devices[A].attributes
    assert dp.Topology((0,)) == devices[A].topology
    assert {} == unhealthy(plugin)
    names, info = told(plugin, A, B)
    assert "mlx5_core.sf.4,mlx5_core.sf.2" == names
    assert {"rack": "7", "port": "2"} == info["mlx5_core.sf.2"]["extra"]
    first = info["mlx5_core.sf.4"]
    assert {"rack": "7", "port": "1"} == first["extra"]
    assert {"deviceID": "mlx5_core.sf.4"} == first["generic"]
    assert "/dev/infiniband/uverbs5" == first["rdma"]["uverbs"]
    plugin.start(SF)
    plugin.discover()
    assert [] == list((tree.root / "devinfo").iterdir())  # the specification has no such device


@pytest.mark.parametrize("by", ["number", "name"])
def test_a_device_is_always_the_sub_function_that_its_id_says(tree: DividedTree, by: str) -> None:
    """As in the kernel, each gets the lowest free number of the bus. The piece is never another."""
    chance, there = random.Random(by), dict[int, int]()
    plugin = tree.plugin(RDMA, sub_function_ids=by)
    for _ in range(25):
        number = chance.randrange(80, 90)
        if number in there:
            tree.remove(f"{PF}-sf{number}")
            del there[number]
        else:
            there[number] = next(one for one in range(9, 99) if one not in there.values())
            tree.sub(PF, number, there[number], rdma=f"sf{number}")
        devices = found(plugin)
        assert len(there) == len(devices)
        for number, place in there.items():
            device = devices[f"{PF}-sf{number}" if by == "number" else f"mlx5_core.sf.{place}"]
            assert f"pci/{PF}-sf{number}" == device.hardware[0]
            assert f"sf{number}" == device.attributes["rdma"]


def test_a_sub_function_that_returns_under_another_number_is_the_same_device(
    tree: DividedTree, kubelet: Kubelet
) -> None:
    tree.sub(PF, 88, 4, rdma="mlx5_9")
    plugin = tree.plugin(RDMA)
    with kubelet.running(plugin) as node:
        node.wait_for(SF, {A})
        before = node.allocate(A)
        tree.remove(A)
        node.wait_for(SF, (), {A})
        tree.sub(PF, 77, 4, rdma="mlx5_9")
        tree.sub(PF, 88, 9, rdma="mlx5_11")
        node.wait_for(SF, {A, f"{PF}-sf77"})
        after = node.allocate(A)
        assert "mlx5_core.sf.9" == after.envs["PCIDEVICE_INTEL_COM_SF"]
        assert "mlx5_core.sf.4" == before.envs["PCIDEVICE_INTEL_COM_SF"]
        assert before.nodes[0].host_path != after.nodes[0].host_path


def test_by_name_a_held_sub_function_is_not_given_again_under_its_new_name(
    tree: DividedTree,
) -> None:
    plugin, world = tree.plugin(RDMA, sub_function_ids="name"), World()
    old, new = "mlx5_core.sf.4", "mlx5_core.sf.9"
    tree.sub(PF, 88, 4, rdma="mlx5_9")
    world.publish({SF: found(plugin)})
    world.pods((SF, old))
    tree.remove(A)
    tree.sub(PF, 77, 4, rdma="mlx5_10")
    tree.sub(PF, 88, 9, rdma="mlx5_9")
    world.publish({SF: found(plugin)})
    assert {new} == {*world.closed(SF)}
    assert f"{new} is held as {old} by pod " in world.allocate(new, resource=SF)
    world.pods()
    assert "" == world.allocate(new, resource=SF)


def test_rdma_devices_in_the_namespace_of_a_pod_stay_in_their_resource(tree: DividedTree) -> None:
    tree.sub(PF, 88, 4, rdma="mlx5_9")
    resources = [{"resourceName": "roce", "selectors": {"isRdma": True}}, {"resourceName": "other"}]
    both = {"resourceList": [*RDMA["resourceList"], *resources]}
    plugin = tree.plugin(both)
    before = found(plugin)
    for address in (A, VF):
        tree.move_rdma_to_pod(address)
    for looking in (plugin, tree.plugin(both)):  # a new process remembers
        assert before == found(looking)
    (tree.folders[VF] / "infiniband").rmdir()  # somebody has unloaded the driver of RDMA
    assert "intel.com/other" == found(plugin)[VF].resource


@pytest.mark.parametrize("driver", ["vhost_vdpa", "virtio_vdpa"])
def test_each_vdpa_device_takes_as_many_reads_however_many_there_are(
    tree: DividedTree, driver: str
) -> None:
    plugin, kernel = (
        tree.plugin(subs(selectors={"vdpaType": driver.partition("_")[0]})),
        Listening(),
    )
    plugin._sysfs = Sysfs(tree.sys, kernel)
    counts = []
    for number in range(9):
        tree.vdpa(tree.sub(PF, number, number), f"vdpa{number}", driver, number)
        before = kernel.directories
        assert number + 1 == len(found(plugin))
        counts.append(kernel.directories - before)
    assert counts[8] - counts[7] == counts[2] - counts[1]


def test_health_says_what_a_sub_function_lacks(tree: DividedTree) -> None:
    tree.sub(PF, 88, 4)
    tree.sub(PF, 90, 5, interface="en90")
    plugin = tree.plugin(subs())
    assert {A: "mlx5_core.sf has made no interface of mlx5_core.sf.4"} == unhealthy(plugin)
    tree.move_to_pod(B)
    assert [A] == list(unhealthy(plugin))  # the interface is in the pod
    assert "en90" == found(plugin)[B].attributes["interface"]
    tree.remove(A)
    tree.cable(PF, is_in=False)
    assert {B: "ens1f0np0: no carrier"} == unhealthy(plugin)
    tree.cable(PF, is_in=True)
    tree.remove(B)
    tree.sub(PF, 90, 5, rdma="mlx5_9")
    shared = tree.plugin(subs(shares=2))
    state = tree.folders[B] / "infiniband/mlx5_9/ports/1/state"
    state.write_text("1: DOWN\n")
    reason = "port 1 of mlx5_9 is DOWN"
    assert {f"{B}::{share}": reason for share in (0, 1)} == unhealthy(shared)


class Listening(FailingKernel):
    """Remembers of which directories the states of ports are read, and counts all."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self.directories = 0

    @override
    def names(self, path: str) -> list[str]:
        self.directories += 1
        return super().names(path)

    @override
    def read(self, path: str, *pages: int) -> bytes:
        self.asked |= {path.partition("/infiniband/")[0]} if "/ports/" in path else set()
        return super().read(path, *pages)


@pytest.mark.parametrize(("shares", "names"), [(1, {PF}), (2, {PF, "mlx5_core.sf.4"})])
def test_the_firmware_is_asked_only_for_links_that_count(
    tree: DividedTree, shares: int, names: set[str]
) -> None:
    tree.sub(PF, 88, 4, rdma="mlx5_9")
    kernel = Listening()
    tree.sysfs = Sysfs(tree.sys, kernel)
    plugin = tree.plugin(subs(selectors={"isRdma": True}, shares=shares))
    assert {} == unhealthy(plugin)
    assert not plugin._links.has_changed()
    assert names == {Path(one).name for one in kernel.asked}


def test_sub_functions_that_are_not_offered_are_named(tree: DividedTree) -> None:
    tree.sub(PF, 88, 4, interface="en88")
    tree.sub(PF, 90, 5, driver="")
    tree.sub(ICE, "", 6, interface="en6")
    tree.sub(ICE, "7/../8", 7, interface="en7")
    plugin = tree.plugin(subs())
    assert [A] == list(found(plugin))
    without = "has no sfnum, without which no id of it would last"
    texts = ["5 has no driver", f"6 {without}", f"7 {without}"]
    assert [f"mlx5_core.sf.{text}" for text in texts] == sorted(plugin.shortfalls)
    found_by_doctor = [one.found for one in doctor.look(Node.at_root(tree.root))]
    assert ", ".join(plugin.shortfalls) in found_by_doctor
    other = tree.plugin({"resourceList": [{"resourceName": "nic"}]})
    found(other)
    assert [] == other.shortfalls


def test_a_card_with_sub_functions_is_given_to_no_pod(tree: DividedTree) -> None:
    nic = {"resourceList": [{"resourceName": "nic"}]}
    plugin = tree.plugin(nic)
    assert ICE in found(plugin)
    tree.sub(ICE, 1, 0, driver="")
    assert not [one for one in found(plugin) if one.startswith(ICE)]
    sub = tree.plugin(subs())
    tree.remove(f"{ICE}-sf1")
    tree.sub(ICE, 1, 0, interface="ens3s1")
    assert [f"{ICE}-sf1"] == list(found(sub))
    tree.route("ens3")
    assert [f"{ICE}-sf1"] == list(found(sub))  # the card's own interface stays with the host
    tree.route("ens3s1")
    assert [] == list(found(sub))  # the node itself needs it


def test_a_card_that_moves_to_switchdev_keeps_its_ids_and_representors_are_nobody(
    tree: DividedTree,
) -> None:
    by_name = subs(selectors={"pfNames": ["ens1f0np0"]})
    tree.sub(PF, 88, 4, interface="en88")
    plugin, vfs = tree.plugin(by_name), tree.plugin({"resourceList": [{"resourceName": "nic"}]})
    before = (ids(plugin), ids(vfs))
    tree.move_to_pod(PF)  # the interface is made anew, as the uplink
    tree.interface(PF, "ens1f0np0", port_name="p0")
    for name in ("pf0vf0", "pf0sf88", "c1pf0sf3", "c1pf0", "pf0"):
        tree.interface(PF, f"rep{name}", port_name=name)
    assert before == (ids(plugin), ids(vfs))
    for name in ("reppf0sf88", "repc1pf0", "reppf0"):
        assert {} == found(tree.plugin(subs(selectors={"pfNames": [name]})))
        named = {"resourceName": "x", "selectors": {"ifNames": [name]}, "shares": 2}
        assert {} == found(tree.plugin({"resourceList": [named]}))


@pytest.mark.parametrize(
    ("kind", "driver", "info", "path"),
    [
        ("vhost", "vhost_vdpa", {"mount": "/dev/vhost-vdpa-3"}, {"path": "/dev/vhost-vdpa-3"}),
        ("virtio", "virtio_vdpa", {}, {}),
    ],
)
def test_a_function_with_a_vdpa_device_is_given_as_the_peer_gives_it(
    tree: DividedTree, kind: str, driver: str, info: Mapping[str, str], path: Mapping[str, str]
) -> None:
    tree.vdpa(VF, "blue", driver, 3)
    tree.hardware.node("vhost-net")
    tree.hardware.node("net/tun")
    plugin = tree.plugin(vdpa(kind, needVhostNet=True))
    assert {"intel.com/vdpa": [VF], "intel.com/vf": ["0000:3b:00.3", *VFIO]} == ids(plugin)
    assert {} == unhealthy(plugin)
    given = nodes(plugin.allocate([found(plugin)[VF]]))
    assert [*(one.removeprefix("/dev/") for one in info.values()), "vhost-net", "net/tun"] == given
    names, told_of = told(plugin, VF)
    assert (VF, info) == (names, told_of[VF]["vdpa"])
    assert "blue" == found(plugin)[VF].attributes["vdpa"]
    plugin.start("intel.com/vdpa")
    file = tree.root / f"devinfo/intel.com-vdpa-{VF}-device.json"
    facts = {"parent-device": "blue", "driver": kind, **path, "pci-address": VF}
    assert {"type": "vdpa", "version": "1.1.0", "vdpa": facts} == json.loads(file.read_text())


VFIO = ["0000:3b:00.4", "0000:3b:00.5"]


def test_health_says_what_a_vdpa_device_lacks(tree: DividedTree) -> None:
    folder = tree.vdpa(VF, "blue", "vhost_vdpa")
    plugin = tree.plugin(vdpa("vhost"))
    (tree.dev / "vhost-vdpa-0").unlink()
    assert {VF: f"{tree.dev}/vhost-vdpa-0 does not exist"} == unhealthy(plugin)
    (folder / "vhost-vdpa-0").rename(folder / "power")
    assert {VF: "blue has no node of vhost_vdpa yet"} == unhealthy(plugin)
    (folder / "driver").unlink()  # without one, it is an ordinary function
    assert VF in ids(plugin)["intel.com/vf"]
    (folder / "driver").symlink_to(tree.sys / "drivers/virtio_vdpa")
    virtio = tree.plugin(vdpa("virtio"))
    assert {VF: "blue has no interface yet: load virtio_net"} == unhealthy(virtio)


def test_the_default_route_by_a_vdpa_device_keeps_it_on_the_node(tree: DividedTree) -> None:
    sub = tree.sub(PF, 88, 4)
    for address, name, number in ((VF, "vdpa2", 2), (sub, "vdpa3", 3)):
        tree.vdpa(address, name, "virtio_vdpa", number)
    entries = [
        vdpa("virtio")["resourceList"][0],
        *subs(selectors={"vdpaType": "virtio"})["resourceList"],
    ]
    plugin = tree.plugin({"resourceList": entries})
    assert {"intel.com/vdpa": [VF], SF: [A]} == ids(plugin)
    tree.route("veth2")
    assert {SF: [A]} == ids(plugin)
    tree.route("veth3")
    assert {"intel.com/vdpa": [VF]} == ids(plugin)


def test_a_vdpa_device_of_a_sub_function_is_given_with_its_node(tree: DividedTree) -> None:
    tree.vdpa(tree.sub(PF, 88, 4), "vdpa0", "vhost_vdpa")
    for by, name in (("number", A), ("name", "mlx5_core.sf.4")):
        plugin = tree.plugin(subs(selectors={"vdpaType": "vhost"}), sub_function_ids=by)
        plugin.start(SF)
        (device,) = found(plugin).values()
        assert (name, ["vhost-vdpa-0"]) == (device.id, nodes(plugin.allocate([device])))
        (file,) = (tree.root / "devinfo").iterdir()
        assert f"intel.com-sf-{name}-device.json" == file.name  # and the other is removed
        facts = {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0"}
        assert facts == json.loads(file.read_text())["vdpa"]


def test_of_several_vdpa_devices_the_others_are_named(tree: DividedTree) -> None:
    for number in (10, 9):
        tree.vdpa(VF, f"vdpa{number}", "vhost_vdpa", number)
    plugin = tree.plugin(vdpa("vhost"))
    assert ["vhost-vdpa-9"] == nodes(plugin.allocate([found(plugin)[VF]]))
    assert [f"intel.com/vdpa: {VF} is given with vdpa9, not vdpa10"] == plugin.shortfalls


@pytest.mark.parametrize("kind", ["vhost", "virtio"])
def test_a_vdpa_device_and_its_function_have_one_holder(tree: DividedTree, kind: str) -> None:
    """The generic plugin offers the node, this one the function, whether with the node or not."""
    tree.vdpa(VF, "blue", "vhost_vdpa")
    (tree.dev / "vhost-vdpa-0").unlink()
    (tree.dev / "vhost-vdpa-0").write_text("")  # a piece, as /dev/null is not
    entries = Devices.parse(["{name: vdpa, groups: [{select: {subsystem: vdpa}}]}"])
    generic = GenericPlugin(GenericSettings(device=entries), Roots(tree.dev, tree.sys))
    plugin, world = tree.plugin(vdpa(kind)), World()
    (other,) = found(generic).values()
    assert f"vdpa-{VF}/blue" == other.id
    assert [f"{tree.dev}/vhost-vdpa-0"] == [one.host_path for one in other.nodes]
    name = str(found(plugin)[VF].resource)
    world.publish({"x.io/b": {other.id: other}}, "generic")
    world.publish({name: {VF: found(plugin)[VF]}}, "rdma")
    world.pods((name, VF))
    assert {other.id} == {*world.closed("x.io/b")}
    world.pods(("x.io/b", other.id))
    assert {VF} == {*world.closed(name)}
    shared = tree.plugin({"resourceList": [{"resourceName": "hca", "shares": 2}]})
    world.publish({"x.io/a": found(shared)}, "rdma")
    assert {} == world.closed("x.io/a")
