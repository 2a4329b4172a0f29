"""An id never means another device: by the rules one by one, and by random plugging."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices
from discovered import found
from generic.plugin import Make
from hardware.recording import play
from hardware.tree import Hardware

SHIPPED = Path(__file__).parents[3] / "deployments/generic/config.yaml"
TTYS = "{name: tty, groups: [{select: {subsystem: tty}}]}"
QUEUES = "{name: wq, groups: [{select: {subsystem: dsa, attributes: {state: enabled}}}]}"
ACCELERATOR = "0000:6a:01.0"


def adapter(hardware: Hardware, port: str, tty: str, serial: str = "") -> str:
    number = 1 + max((int(path.name) for path in hardware.dev.rglob("bus/usb/001/*")), default=1)
    usb = hardware.usb(port, "1a86:7523", number, serial=serial)
    hardware.behind_usb(usb, "1.0", "tty", tty, driver="ch341")
    return usb


def nodes(plugin: dp.Plugin) -> dict[str, list[str]]:
    """Return the names of the nodes of each device, by id."""
    return {
        one: [Path(node.host_path).name for node in device.nodes]
        for one, device in found(plugin).items()
    }


def queue(hardware: Hardware, number: int) -> Path:
    """Make a work queue of an accelerator, and the node that it has while it is enabled."""
    if not (hardware.sys / f"devices/pci0000:00/{ACCELERATOR}").exists():
        hardware.pci(ACCELERATOR, "8086:0b25", "088000", driver="idxd", numa=0)
        hardware.device(f"pci0000:00/{ACCELERATOR}/dsa0", "dsa", is_bus=True)
    path = f"pci0000:00/{ACCELERATOR}/dsa0/wq0.{number}"
    folder = hardware.device(path, "dsa", attributes={"state": "enabled"}, is_bus=True)
    enable(hardware, folder)
    return folder


def enable(hardware: Hardware, folder: Path) -> None:
    (folder / "state").write_text("enabled\n")
    path = folder.relative_to(hardware.sys / "devices") / f"dsa!{folder.name}"
    hardware.device(str(path), "dsa", node=f"dsa/{folder.name}", is_bus=True)


def disable(hardware: Hardware, folder: Path) -> None:
    (folder / "state").write_text("disabled\n")
    hardware.unplug(str(folder.relative_to(hardware.sys / "devices") / f"dsa!{folder.name}"))


def test_a_device_has_neither_number_nor_interface_of_the_hub_that_it_is_plugged_into(
    make: Make, hardware: Hardware
) -> None:
    hub = hardware.usb("1-1", "05e3:0610", 2, serial="HUB")
    hardware.behind_usb(hub, "1.0", "tty", "ttyACM9")
    adapter(hardware, "1-1.4", "ttyUSB0")
    entry = (
        "{name: ab, groups: [{select: {subsystem: tty}}, {usb: [{vendor: 1a86, product: '7523'}]}]}"
    )
    plugin = make(entry.replace("name: ab,", "name: ab, id: serial,"))
    assert ["ab-1-1.4:1.0", "ab-HUB:1.0", "ab-1-1.4"] == list(found(plugin))


def test_no_device_of_a_real_machine_has_the_number_of_a_hub(
    make: Make, hardware: Hardware
) -> None:
    play("hubs", hardware)
    plugin = make("{name: usb, groups: [{select: {subsystem: usb}}]}")
    expected = {
        "usb-0000%3A00%3A1a.0": ["001"],
        "usb-1-1": ["002"],
        "usb-1-1.5": ["003"],
        "usb-1-1.5.2": ["005"],
        "usb-C767F1C714174C309255F70E4A7B2EE2": ["011"],
    }
    assert expected == nodes(plugin)


def test_the_configuration_that_is_shipped_tells_adapters_without_numbers_apart(
    make: Make, hardware: Hardware
) -> None:
    adapter(hardware, "1-1", "ttyUSB0")
    adapter(hardware, "1-2", "ttyUSB1")
    shipped = yaml.safe_load(SHIPPED.read_text())
    entries = {entry["name"]: yaml.safe_dump(entry) for entry in shipped["devices"]}
    plugin = make(entries["serial"])
    assert {"serial-1-1:1.0": ["ttyUSB0"], "serial-1-2:1.0": ["ttyUSB1"]} == nodes(plugin)
    assert {""} == {device.attributes.get("serial", "") for device in plugin.discover()}


def test_a_device_keeps_its_id_when_another_of_its_serial_number_comes_and_goes(
    make: Make, hardware: Hardware
) -> None:
    one = adapter(hardware, "1-1", "ttyUSB0", "0001")
    plugin = make(TTYS)
    assert {"tty-0001:1.0": ["ttyUSB0"]} == nodes(plugin)
    two = adapter(hardware, "1-2", "ttyUSB1", "0001")
    assert {"tty-0001:1.0": ["ttyUSB0"], "tty-0001@1-2:1.0": ["ttyUSB1"]} == nodes(plugin)
    hardware.unplug(one)
    assert {"tty-0001@1-2:1.0": ["ttyUSB1"]} == nodes(plugin)
    hardware.unplug(two)
    assert {} == nodes(plugin)
    adapter(hardware, "1-3", "ttyUSB0", "0001")
    assert {"tty-0001@1-3:1.0": ["ttyUSB0"]} == nodes(plugin)


def test_a_serial_number_is_doubled_by_a_device_that_is_not_selected(
    make: Make, hardware: Hardware
) -> None:
    hardware.usb("1-1", "1a86:7523", 2, serial="0001")  # no driver has it yet
    adapter(hardware, "1-2", "ttyUSB1", "0001")
    assert ["tty-0001@1-2:1.0"] == list(found(make(TTYS)))


def test_no_serial_number_gives_the_id_that_another_device_had(
    make: Make, hardware: Hardware
) -> None:
    before = [
        adapter(hardware, port, f"ttyUSB{port[-1]}", number)
        for port, number in (("1-1", "X"), ("1-2", "X"), ("1-3", ""))
    ]
    first = found(make(TTYS)).keys()
    for usb in before:
        hardware.unplug(usb)
    odd = ("1-3", "X", "X@1-1", "X@1-1:1.0", "X%401-1", "X@1-1:1.0/ttyUSB0", "1-3:1.0")
    for number, serial in enumerate((*odd, "a b", "a_b", "a\u00e9b", "a%20b"), 4):
        adapter(hardware, f"1-{number}", f"ttyUSB{number}", serial)
    second = found(make(TTYS)).keys()
    assert (set(), 11) == (first & second, len(second))


def test_a_work_queue_never_takes_the_id_of_another(make: Make, hardware: Hardware) -> None:
    queues = [queue(hardware, number) for number in (0, 1)]
    plugin = make(QUEUES)
    ids = [f"wq-{ACCELERATOR}/dsa!wq0.{number}" for number in (0, 1)]
    assert {ids[0]: ["wq0.0"], ids[1]: ["wq0.1"]} == nodes(plugin)
    disable(hardware, queues[0])
    assert {ids[1]: ["wq0.1"]} == nodes(plugin)
    assert {ids[1]: ["wq0.1"]} == nodes(make(QUEUES))
    enable(hardware, queues[0])
    assert {ids[0]: ["wq0.0"], ids[1]: ["wq0.1"]} == nodes(plugin)


def test_ports_that_the_kernel_counts_have_its_numbers(make: Make, hardware: Hardware) -> None:
    usb = hardware.usb("1-1", "110a:1410", 2, serial="S")
    for number in ("0", "1"):
        path = f"{usb}/1-1:1.0/ttyUSB{number}"
        hardware.behind_usb(usb, "1.0", "other", f"none{number}", node="")
        hardware.device(path, "usb-serial", attributes={"port_number": number}, is_bus=True)
        hardware.device(f"{path}/tty/ttyUSB{number}x", "tty", node=f"ttyUSB{number}")
    assert {"tty-S:1.0": ["ttyUSB0"], "tty-S:1.0.1": ["ttyUSB1"]} == nodes(make(TTYS))


def hid(hardware: Hardware, path: str, subsystem: str, name: str) -> None:
    """Make a HID device, of which the kernel counts the instances, and a device behind it."""
    if not (hardware.sys / "devices" / path / "subsystem").exists():
        hardware.device(path, "hid", driver="hid-generic", is_bus=True)
    hardware.device(f"{path}/{subsystem}/{name}", subsystem, node=name)


@pytest.mark.parametrize("instance", [5, 9])
def test_devices_behind_a_receiver_are_known_by_what_they_are(
    make: Make, hardware: Hardware, instance: int
) -> None:
    usb = hardware.usb("1-1", "046d:c52b", 2)
    hardware.behind_usb(usb, "1.2", "hidden", "hidden0")
    receiver = f"{usb}/1-1:1.2/0003:046D:C52B.{instance:04}"
    hid(hardware, receiver, "hidraw", f"hidraw{instance}")
    plugin = make("{name: hid, groups: [{select: {subsystem: hidraw}}]}")
    assert ["hid-1-1:1.2"] == list(found(plugin))
    hid(hardware, f"{receiver}/0003:046D:4082.0006", "hidraw", "hidraw2")
    mouse = {"hid-1-1:1.2.0003:046D:4082": ["hidraw2"]}
    assert {"hid-1-1:1.2": [f"hidraw{instance}"], **mouse} == nodes(plugin)


def test_input_devices_are_known_by_their_kind(make: Make, hardware: Hardware) -> None:
    usb = hardware.usb("1-1", "05f9:2214", 2, serial="S")
    for name in ("event5", "mouse0"):
        hardware.behind_usb(usb, "1.0", "input", name)
    plugin = make("{name: scan, groups: [{select: {subsystem: input}}]}")
    assert {"scan-S:1.0.event": ["event5"], "scan-S:1.0.mouse": ["mouse0"]} == nodes(plugin)


def test_a_node_keeps_its_id_when_another_comes_up_on_its_interface(
    make: Make, hardware: Hardware
) -> None:
    usb = hardware.usb("1-1", "046d:0825", 2, serial="S")
    hardware.behind_usb(usb, "1.0", "hidraw", "hidraw0")
    plugin = make("{name: hid, groups: [{select: {subsystem: hidraw}}]}")
    assert {"hid-S:1.0": ["hidraw0"]} == nodes(plugin)
    hardware.behind_usb(usb, "1.0", "hidraw", "hidraw1")
    assert {"hid-S:1.0": ["hidraw0"], "hid-S:1.0/hidraw1": ["hidraw1"]} == nodes(plugin)
    hardware.unplug(f"{usb}/1-1:1.0/hidraw/hidraw0")
    assert {"hid-S:1.0/hidraw1": ["hidraw1"]} == nodes(plugin)


def test_an_iommu_group_keeps_its_id_whatever_of_it_is_selected(
    make: Make, hardware: Hardware
) -> None:
    hardware.pci("0000:64:00.0", "8086:1901", "060400", group="7", driver="pcieport")
    for number in ("0", "1"):
        hardware.pci(f"0000:65:00.{number}", "10de:1eb8", "030200", group="7", driver="vfio-pci")
    entry = "{name: gpu, groups: [{select: {subsystem: pci, driver: vfio-pci}, nodes: [vfio]}]}"
    plugin = make(entry)
    assert {"gpu-0000:65:00.0": ["vfio", "7"]} == nodes(plugin)
    (hardware.sys / "devices/pci0000:00/0000:65:00.0/driver").unlink()
    hardware.event()
    assert {"gpu-0000:65:00.0": ["vfio", "7"]} == nodes(plugin)


def test_parts_of_a_platform_device_have_its_name(make: Make, hardware: Hardware) -> None:
    hardware.device("platform/fe201000.serial", "platform", is_bus=True)
    hardware.device("platform/fe201000.serial/tty/ttyAMA0", "tty", node="ttyAMA0")
    assert ["tty-fe201000.serial/ttyAMA0"] == list(found(make(TTYS)))


def test_devices_that_are_put_together_have_all_of_their_names(
    make: Make, hardware: Hardware
) -> None:
    for name in ("a1", "a2", "c"):
        (hardware.dev / name).symlink_to("/dev/null")
    paths = f"paths: [{{path: {hardware.dev}/c, limit: 9}}, {{path: {hardware.dev}/a*}}]"
    plugin = make(f"{{name: ab, id: serial, groups: [{{{paths}}}]}}")
    assert {"ab-c+a1": ["c", "a1"], "ab-c+a2": ["c", "a2"]} == nodes(plugin)
    (hardware.dev / "a1").unlink()
    assert {"ab-c+a2": ["c", "a2"]} == nodes(plugin)


def test_paths_of_one_name_in_several_directories_are_told_apart(
    make: Make, hardware: Hardware
) -> None:
    for name in ("sub1/x", "sub2/x"):
        (hardware.dev / name).parent.mkdir()
        (hardware.dev / name).symlink_to("/dev/null")
    plugin = make(f"{{name: ab, id: serial, groups: [{{paths: [{{path: {hardware.dev}/*/x}}]}}]}}")
    before = found(plugin)
    (hardware.dev / "sub1/x").unlink()
    assert 2 == len(before)
    (left,) = found(plugin).values()
    assert before[left.id].nodes == left.nodes


def test_groups_that_take_different_parts_of_a_device_have_different_ids(
    make: Make, hardware: Hardware
) -> None:
    usb = adapter(hardware, "1-1", "ttyUSB0", "S")
    hardware.behind_usb(usb, "1.1", "hidraw", "hidraw0")
    spec = "usb: [{vendor: 1a86, product: '7523'}]"
    plugin = make(f"{{name: ab, groups: [{{{spec}, nodes: [tty]}}, {{{spec}, nodes: [hidraw]}}]}}")
    assert {"ab-S/tty": ["ttyUSB0"], "ab-S/hidraw": ["hidraw0"]} == nodes(plugin)


def test_paths_that_are_one_resource_of_smarters_have_ids_of_their_own(
    hardware: Hardware, tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("- {devicematch: '^a', nummaxdevices: 1}\n")
    for name in ("a.b", "a_b"):
        hardware.node(name)
    plugin = GenericPlugin(
        GenericSettings.of_file(file),
        Roots(hardware.dev, hardware.sys, hardware.udev),
    )
    assert {"a.b-0": ["a.b"]} == nodes(plugin)
    (hardware.dev / "a.b").unlink()
    (device,) = plugin.discover()
    assert ("a_b-0", "smarter-devices/a_b") == (device.id, device.resource)


class World:
    """A machine into which devices are plugged at random, and what its plugin calls them."""

    ENTRIES = (TTYS, QUEUES)

    def __init__(self, root: Path) -> None:
        self.hardware = Hardware(root)
        self.sticks: dict[str, tuple[str, str]] = {}
        self.queues = [queue(self.hardware, number) for number in (0, 1, 2)]
        self.enabled = {*self.queues}
        self.meaning: dict[str, object] = {}
        """Which device an id stands for, ever."""
        self.doubled: set[str] = set()
        """Serial numbers that the running plugin has seen twice."""
        self.names: dict[object, str] = {}
        """Ids of what was there at the last look."""
        self.restart()

    def restart(self) -> None:
        roots = Roots(self.hardware.dev, self.hardware.sys, self.hardware.udev)
        entries = Devices.parse(list(self.ENTRIES))
        self.plugin = GenericPlugin(GenericSettings(device=entries), roots)
        self.doubled, self.names = set(), {}
        self.seen: dict[str, object] = {}

    def plug(self, port: str, serial: str) -> None:
        """Plug a stick in, at first taking it out and freeing the port.

        The kernel gives its tty the first number that is free.
        """
        places = [one for one, (_, own) in self.sticks.items() if own == serial in {"S1", "S2"}]
        for place in {port, *places}:
            self.unplug(place)
        used = {int(path.name[6:]) for path in self.hardware.dev.glob("ttyUSB*")}
        name = f"ttyUSB{min({0, 1, 2, 3} - used)}"
        usb = adapter(self.hardware, port, name, serial)
        self.sticks[port] = usb, serial

    def unplug(self, port: str) -> None:
        if port in self.sticks:
            self.hardware.unplug(self.sticks.pop(port)[0])

    def toggle(self, number: int) -> None:
        folder = self.queues[number]
        (disable if folder in self.enabled else enable)(self.hardware, folder)
        self.enabled ^= {folder}

    def look(self) -> None:
        """Look, and see that every id stands for what it stood for before."""
        serials = [serial for _, serial in self.sticks.values() if serial]
        self.doubled |= {one for one in serials if serials.count(one) > 1}
        devices = list(self.plugin.discover())
        assert len(self.sticks) + len(self.enabled) == len({device.id for device in devices})
        names: dict[object, str] = {}
        for device in devices:
            path = Path(device.nodes[0].host_path)
            if path.parent.name == "dsa":
                thing: object = path.name
            else:
                port = str(device.attributes["port"])
                serial = str(device.attributes.get("serial", ""))
                assert self.sticks[port][1] == serial
                thing = self._stick(device.id, port, serial, path.name)
            assert self.meaning.setdefault(device.id, thing) == thing
            names[thing, path.name] = device.id
        for thing in names.keys() & self.names.keys():
            assert self.names[thing] == names[thing], (
                "the id of a device changed while it was there"
            )
        self.names = names

    def _stick(self, device: str, port: str, serial: str, node: str) -> object:
        """Return what can be known of a stick: without a number of its own it is what is there."""
        if serial != "SAME":
            return serial or port
        if "@" in device:
            return serial, port
        # While it is the only one of its number, it is known by that. After that, no other is.
        known = self.seen.setdefault(device, (port, node))
        if serial in self.doubled:
            assert known == (port, node)
        else:
            self.seen[device] = port, node
        return serial


PORTS = st.sampled_from(["1-1", "1-2", "1-3", "1-4.1"])
STEPS: st.SearchStrategy[Callable[[World], None]] = st.one_of(
    st.builds(
        lambda port, serial: lambda world: world.plug(port, serial),
        PORTS,
        st.sampled_from(["", "SAME", "S1", "S2"]),
    ),
    st.builds(lambda port: lambda world: world.unplug(port), PORTS),
    st.builds(lambda number: lambda world: world.toggle(number), st.integers(0, 2)),
    st.just(World.restart),
)


@settings(deadline=None, max_examples=25)
@given(st.lists(STEPS, min_size=2, max_size=14))
def test_whatever_is_plugged_and_unplugged_an_id_means_one_device(
    steps: list[Callable[[World], None]],
) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        for step in steps:
            step(world)
            world.look()
