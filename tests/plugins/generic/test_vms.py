"""The recipes for virtual machines, up to what virt-launcher makes of them."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import yaml

import deviceplugin as dp
from deviceplugin_generic.configuration.cautions import cautions
from deviceplugin_generic.configuration.loading import Devices, Domains
from discovered import found, reasons
from generic.plugin import Machine
from one_piece.world import World
from served.both_protocols import by_both
from served.cluster_node import served
from virt_launcher import LaunchError, claimed, launch

PAGE: Final = (Path(__file__).parents[3] / "plugins/generic/docs/vms.md").read_text()
_BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
PERMITTED: Mapping[str, Any] = yaml.safe_load(_BLOCKS[0])["permittedHostDevices"]
RECIPES: Final = {
    entries["devices"][0]["name"]: (entries["devices"], machine["hostDevices"])
    for entries, machine in map(list, map(yaml.safe_load_all, _BLOCKS[1:-1]))
}
TEMPLATE, CLAIMING = _BLOCKS[-1].split("---")
DEVIC_ES = Domains(("devic.es",))
UUIDS = ("83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002")
GPUS = ("0000:01:00.0", "0000:02:00.0")
AUDIO, LOWER = "0000:01:00.1", "0000:00:1f.0"
JOINED = "joinedEnv: {'PCI_RESOURCE_{resource}': '{address}'}"


def plugin(machine: Machine, *entries: object, **changes: object) -> dp.Plugin:
    texts = [one if isinstance(one, str) else yaml.safe_dump(one) for one in entries]
    return machine.plugin(*texts, **({"domain": DEVIC_ES} | changes))


def vfio(name: str, more: str) -> str:
    """Return an entry for what VFIO has."""
    group = f"{{select: {{subsystem: pci, {more}}}, nodes: [vfio]}}"
    return f"{{name: {name}, groups: [{group}], {JOINED}}}"


def gpus(machine: Machine) -> None:
    for number, address in enumerate(GPUS, 1):
        for function, kind in (("0", "030000"), ("1", "040300"), ("2", "0c0330")):
            one = f"{address[:-1]}{function}"
            driver = "" if function == "2" and number == 2 else "vfio-pci"
            machine.pci(one, "10de:2204", kind, group=str(number), driver=driver)
    machine.pci("0000:00:01.1", "8086:1901", "060400", group="1", driver="pcieport")


def functions(machine: Machine) -> None:
    physical = machine.pci("0000:03:00.0", "8086:1572", "020000", group="3", driver="i40e")
    for number in ("2", "10"):
        path = f"0000:03:{int(number):02x}.0"
        folder = machine.pci(path, "8086:154c", "020000", group=number, driver="vfio-pci")
        (folder / "physfn").symlink_to(physical)
    machine.pci("0000:04:00.0", "8086:1533", "020000", group="4", driver="vfio-pci")


def mediated(machine: Machine) -> None:
    machine.pci("0000:00:02.0", "10de:1eb8", "030000", group="9", driver="nvidia")
    for uuid, group, kind in (
        *zip(UUIDS, ("11", "12"), ("GRID T4-1Q", "GRID T4-2Q"), strict=True),
    ):
        folder = machine.device(
            f"pci0000:00/0000:00:02.0/{uuid}", "mdev", driver="nvidia-vgpu", is_bus=True
        )
        (folder / "mdev_type").mkdir()
        (folder / "mdev_type/name").write_text(f"{kind}\n")
        machine.join(folder, group)
        machine.vfio(group)


def tokens(machine: Machine) -> None:
    for port, number in (("1-2", 5), ("1-4", 17)):
        machine.usb(port, "0529:0620", number, serial="same")


CASES: Mapping[str, tuple[Callable[[Machine], None], dict[str, str]]] = {
    "gpu": (gpus, {"gpu": GPUS[0], "audio": AUDIO}),
    "vf": (functions, {"one": "0000:03:02.0", "two": "0000:03:0a.0"}),
    "vgpu": (mediated, {"vgpu": UUIDS[0]}),
    "token": (tokens, {"token": "1:5"}),
}


def allocated(made: dp.Plugin, machine: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of a container that gets the first devices, as the pod asks for them."""
    devices = [one for one in made.discover() if one.health]
    envs: dict[str, str] = {}
    for resource, count in Counter(one["deviceName"] for one in machine).items():
        own = [one for one in devices if one.resource == resource][:count]
        assert count == len(own)
        more = made.allocate(own).envs
        assert set() == envs.keys() & more.keys()  # the kubelet keeps the first
        envs |= more
    return envs


def test_every_recipe_is_tested_and_permitted() -> None:
    assert list(CASES) == list(RECIPES)
    listed = [one for some in PERMITTED.values() for one in some]
    assert {True} == {one["externalResourceProvider"] for one in listed}
    asked = {one["deviceName"] for _, machine in RECIPES.values() for one in machine}
    assert asked == {one["resourceName"] for one in listed}


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_leads_to_the_devices_in_the_machine(machine: Machine, name: str) -> None:
    build, expected = CASES[name]
    entries, host_devices = RECIPES[name]
    build(machine)
    made = plugin(machine, *entries)
    assert {""} == {*reasons(made).values()}
    assert expected == launch(host_devices, allocated(made, host_devices))


def test_a_machine_gets_whole_cards_however_many_it_asks_for(machine: Machine) -> None:
    gpus(machine)
    made = plugin(machine, *RECIPES["gpu"][0])

    def asking(cards: int, others: int) -> dict[str, str]:
        wanted = [{"name": f"g{i}", "deviceName": "devic.es/gpu"} for i in range(cards)]
        wanted += [{"name": f"o{i}", "deviceName": "devic.es/gpu-group"} for i in range(others)]
        return launch(wanted, allocated(made, wanted))

    assert {"g0": GPUS[0]} == asking(1, 0)
    assert {"g0": GPUS[0], "g1": GPUS[1]} == asking(2, 0)
    assert {"g0": GPUS[0], "o0": AUDIO, "o1": "0000:01:00.2"} == asking(1, 2)
    # Of the second card's functions VFIO has two.
    more = [AUDIO, "0000:01:00.2", "0000:02:00.1"]
    assert [*GPUS, *more] == list(asking(2, 3).values())
    for cards, others in ((1, 3), (2, 4), (0, 1)):
        with pytest.raises(LaunchError, match="asked for"):
            asking(cards, others)


def test_each_resource_and_domain_has_its_own_variable(machine: Machine) -> None:
    functions(machine)
    entries = [vfio("a-b", "vendor: '8086', product: '154c'"), vfio("cc", "product: '1533'")]
    domains = Domains(("devic.es", "a-b.x.io"))
    assert {
        "devic.es/a-b": "PCI_RESOURCE_DEVIC_ES_A-B",
        "a-b.x.io/a-b": "PCI_RESOURCE_A-B_X_IO_A-B",
        "devic.es/cc": "PCI_RESOURCE_DEVIC_ES_CC",
        "a-b.x.io/cc": "PCI_RESOURCE_A-B_X_IO_CC",
    } == {
        one.resource: next(iter(one.envs))
        for one in plugin(machine, *entries, domain=domains).discover()
    }


def test_a_device_cannot_add_a_part_to_a_list(machine: Machine) -> None:
    for port, serial in (("1-2", "a,b"), ("1-3", "{resource},{position}"), ("1-4", "")):
        machine.usb(port, "0529:0620", int(port[-1]), serial=serial)
    stick = "{name: stick, id: port, groups: [{usb: [{vendor: '0529', product: '0620'}],"
    made = plugin(
        machine, f"{stick} perMatch: true}}], joinedEnv: {{'S_{{resource}}': '{{serial}}'}}}}"
    )
    expected = {"S_DEVIC_ES_STICK": "a%2Cb,{resource}%2C{position}"}
    assert expected == made.allocate([*made.discover()]).envs


def test_shares_of_a_device_add_it_once_and_check_warns_of_them(machine: Machine) -> None:
    functions(machine)
    entry = vfio("nic", "product: '1533'").replace("groups: [{", "groups: [{count: 3, ")
    made = plugin(machine, entry)
    assert {"PCI_RESOURCE_DEVIC_ES_NIC": "0000:04:00.0"} == made.allocate([*made.discover()]).envs
    entry = entry.replace("[vfio]", "[vfio, drm, {subsystem: net, name: e*}]")
    others, shares = cautions(Devices.parse([entry]).configuration)
    assert others.startswith("nic: nodes: drm, net is not given beside vfio, because")
    assert shares.startswith("nic: count is 3: an IOMMU group has one holder")


@pytest.mark.parametrize("overlap", ["allow", "first", "refuse"])
def test_no_two_machines_get_functions_of_one_group(machine: Machine, overlap: str) -> None:
    gpus(machine)
    entries = [vfio("card", "class: '03'"), vfio("audio", "class: '04'")]
    made = plugin(machine, *entries, overlap=overlap)
    healthy = ["devic.es/card"] * (2 if overlap != "refuse" else 0)
    assert healthy == [one.resource for one in made.discover() if one.health]
    if overlap == "allow":
        reason = "also matched by devic.es/card, and an IOMMU group has one holder"
        assert reason == found(made)[f"audio-{GPUS[0]}"].health.reason.partition(":")[0]


@pytest.mark.parametrize(
    ("entries", "joining", "closed"),
    [
        ([vfio("vm", "driver: vfio-pci")], LOWER, f"vm-{LOWER}"),  # the device has another id
        ([vfio("audio", "class: '04'"), vfio("vm", "class: '03'")], AUDIO, f"audio-{GPUS[0]}"),
    ],
)
def test_a_function_that_joins_the_group_of_a_machine_does_not_give_it_away(
    machine: Machine, entries: list[str], joining: str, closed: str
) -> None:
    machine.pci(GPUS[0], "10de:2204", "030000", group="1", driver="vfio-pci")
    made, world = plugin(machine, *entries), World()
    world.look(made)
    world.pods(("devic.es/vm", f"vm-{GPUS[0]}"))
    machine.pci(joining, "10de:2204", "040300", group="1", driver="vfio-pci")
    world.look(made)
    assert [closed] == [*world.closed(f"devic.es/{closed.partition('-')[0]}")]
    machine.unplug(f"pci0000:00/{joining}")
    world.look(made)
    assert {} == world.closed("devic.es/vm")


@pytest.mark.slow
def test_dra_gives_the_same_with_iommufd(machine: Machine) -> None:
    for number, address in enumerate(("0000:04:00.0", "0000:05:00.0")):
        folder = machine.pci(address, "8086:1533", "020000", group=str(number), driver="vfio-pci")
        machine.vfio_device(folder, number)
    with TemporaryDirectory(prefix="dp") as root:
        expected, got = by_both(Path(root), lambda: plugin(machine, vfio("nic", "vendor: '8086'")))
    assert expected == got
    both = max(got.values(), key=lambda one: len(one["nodes"]))
    assert {"PCI_RESOURCE_DEVIC_ES_NIC": "0000:04:00.0,0000:05:00.0"} == both["envs"]
    names = ("iommu", "vfio/0", "vfio/1", "vfio/devices/vfio0", "vfio/devices/vfio1", "vfio/vfio")
    assert {f"/dev/{name}" for name in names} == {inside for _, inside, _ in both["nodes"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "address"),
    [
        ("gpu", "resource.kubernetes.io/pciBusID", GPUS[0]),
        ("vf", "resource.kubernetes.io/pciBusID", "0000:03:0a.0"),
        ("vgpu", "mdevUUID", UUIDS[0]),
        ("token", "", "no mdevUUID or pciBusID"),
    ],
)
def test_a_machine_finds_the_device_of_its_claim(
    machine: Machine, name: str, kind: str, address: str
) -> None:
    CASES[name][0](machine)
    made = plugin(machine, *RECIPES[name][0])
    (claim,), (device,) = yaml.safe_load(CLAIMING).values()
    with (
        TemporaryDirectory(prefix="dp") as root,
        served(Path(root), made, protocol="dra", device_metadata=True) as node,
    ):
        node.offer(f"devic.es/{name}")
        node.cluster.create(
            yaml.safe_load(
                TEMPLATE.replace("deviceClassName: vf", f"deviceClassName: devic.es-{name}")
            )
        )
        mounts = {
            one.container_path: one.host_path for one in node.got(node.claiming(claim)).mounts
        }
        if kind:
            assert (kind, address) == claimed(mounts, claim, device["requestName"])
        else:
            with pytest.raises(LaunchError, match=address):
                claimed(mounts, claim, device["requestName"])


def test_nodes_of_iommufd_change_no_id_and_only_nodes_that_are_there_are_given(
    machine: Machine,
) -> None:
    folder = machine.pci(AUDIO, "8086:1533", "020000", group="1", driver="vfio-pci")
    entry = vfio("nic", "vendor: '8086'").replace("name: nic", "name: nic, id: path")
    (before,) = found(plugin(machine, entry)).values()
    machine.vfio_device(folder, 0)
    (after,) = found(plugin(machine, entry)).values()
    assert (before.id, [*before.nodes]) == (after.id, [*after.nodes[:2]])
    assert ["/dev/iommu", "/dev/vfio/devices/vfio0"] == [n.container_path for n in after.nodes[2:]]
    (machine.dev / "vfio/devices/vfio0").unlink()
    (last,) = found(plugin(machine, entry)).values()
    assert (True, before.nodes) == (bool(last.health), last.nodes)
