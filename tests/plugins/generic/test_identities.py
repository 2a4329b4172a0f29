"""An id never means another device: by the rules one by one, and by random plugging."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from discovered import found
from generic.plugin import Machine
from hardware.recording import play

EXAMPLE = Path(__file__).parents[3] / "demo/examples/generic/config.yaml"
TTYS = "{name: tty, groups: [{select: {subsystem: tty}}]}"
QUEUES = "{name: wq, groups: [{select: {subsystem: dsa, attributes: {state: enabled}}}]}"
ACCELERATOR = "0000:6a:01.0"


def adapter(machine: Machine, port: str, tty: str, serial: str = "") -> str:
    number = 1 + max((int(path.name) for path in machine.dev.rglob("bus/usb/001/*")), default=1)
    usb = machine.usb(port, "1a86:7523", number, serial=serial)
    machine.behind_usb(usb, "1.0", "tty", tty, driver="ch341")
    return usb


def nodes(plugin: dp.Plugin) -> dict[str, list[str]]:
    """Return the names of the nodes of each device, by id."""
    return {
        one: [Path(node.host_path).name for node in device.nodes]
        for one, device in found(plugin).items()
    }


def queue(machine: Machine, number: int) -> Path:
    """Make a work queue of an accelerator, and the node that it has while it is enabled."""
    if not (machine.sys / f"devices/pci0000:00/{ACCELERATOR}").exists():
        machine.pci(ACCELERATOR, "8086:0b25", "088000", driver="idxd", numa=0)
        machine.device(f"pci0000:00/{ACCELERATOR}/dsa0", "dsa", is_bus=True)
    path = f"pci0000:00/{ACCELERATOR}/dsa0/wq0.{number}"
    folder = machine.device(path, "dsa", attributes={"state": "enabled"}, is_bus=True)
    enable(machine, folder)
    return folder


def enable(machine: Machine, folder: Path) -> None:
    (folder / "state").write_text("enabled\n")
    path = folder.relative_to(machine.sys / "devices") / f"dsa!{folder.name}"
    machine.device(str(path), "dsa", node=f"dsa/{folder.name}", is_bus=True)


def disable(machine: Machine, folder: Path) -> None:
    (folder / "state").write_text("disabled\n")
    machine.unplug(str(folder.relative_to(machine.sys / "devices") / f"dsa!{folder.name}"))


def test_a_device_has_neither_number_nor_interface_of_the_hub_that_it_is_plugged_into(
    machine: Machine,
) -> None:
    hub = machine.usb("1-1", "05e3:0610", 2, serial="HUB")
    machine.behind_usb(hub, "1.0", "tty", "ttyACM9")
    adapter(machine, "1-1.4", "ttyUSB0")
    entry = (
        "{name: ab, groups: [{select: {subsystem: tty}}, {usb: [{vendor: 1a86, product: '7523'}]}]}"
    )
    plugin = machine.plugin(entry.replace("name: ab,", "name: ab, id: serial,"))
    assert ["ab-1-1.4:1.0", "ab-HUB:1.0", "ab-1-1.4"] == list(found(plugin))


def test_no_device_of_a_real_machine_has_the_number_of_a_hub(machine: Machine) -> None:
    play("hubs", machine)
    plugin = machine.plugin("{name: usb, groups: [{select: {subsystem: usb}}]}")
    expected = {
        "usb-0000%3A00%3A1a.0": ["001"],
        "usb-1-1": ["002"],
        "usb-1-1.5": ["003"],
        "usb-1-1.5.2": ["005"],
        "usb-C767F1C714174C309255F70E4A7B2EE2": ["011"],
    }
    assert expected == nodes(plugin)


def test_the_entry_of_the_example_tells_adapters_without_numbers_apart(
    machine: Machine,
) -> None:
    adapter(machine, "1-1", "ttyUSB0")
    adapter(machine, "1-2", "ttyUSB1")
    shown = yaml.safe_load(EXAMPLE.read_text())
    entries = {entry["name"]: yaml.safe_dump(entry) for entry in shown["devices"]}
    plugin = machine.plugin(entries["serial"])
    assert {"serial-1-1:1.0": ["ttyUSB0"], "serial-1-2:1.0": ["ttyUSB1"]} == nodes(plugin)
    assert {""} == {device.attributes.get("serial", "") for device in plugin.discover()}


def test_a_serial_number_is_doubled_by_a_device_that_is_not_selected(machine: Machine) -> None:
    machine.usb("1-1", "1a86:7523", 2, serial="0001")  # no driver has it yet
    adapter(machine, "1-2", "ttyUSB1", "0001")
    assert ["tty-0001@1-2:1.0"] == list(found(machine.plugin(TTYS)))


def test_no_serial_number_gives_the_id_that_another_device_had(machine: Machine) -> None:
    before = [
        adapter(machine, port, f"ttyUSB{port[-1]}", number)
        for port, number in (("1-1", "X"), ("1-2", "X"), ("1-3", ""))
    ]
    first = found(machine.plugin(TTYS)).keys()
    for usb in before:
        machine.unplug(usb)
    odd = ("1-3", "X", "X@1-1", "X@1-1:1.0", "X%401-1", "X@1-1:1.0/ttyUSB0", "1-3:1.0")
    for number, serial in enumerate((*odd, "a b", "a_b", "a\u00e9b", "a%20b"), 4):
        adapter(machine, f"1-{number}", f"ttyUSB{number}", serial)
    second = found(machine.plugin(TTYS)).keys()
    assert (set(), 11) == (first & second, len(second))


def of_paths(machine: Machine, *patterns: str) -> dp.Plugin:
    paths = ", ".join(f"{{path: {machine.dev}/{pattern}, limit: 9}}" for pattern in patterns)
    return machine.plugin(f"{{name: ab, id: serial, groups: [{{paths: [{paths}]}}]}}")


def test_paths_that_are_put_together_have_all_of_their_names(machine: Machine) -> None:
    for name in ("a1", "a2", "c"):
        machine.node(name)
    plugin = of_paths(machine, "c", "a*")
    assert {"ab-c+a1": ["c", "a1"], "ab-c+a2": ["c", "a2"]} == nodes(plugin)
    (machine.dev / "a1").unlink()
    assert {"ab-c+a2": ["c", "a2"]} == nodes(plugin)


def test_paths_of_one_name_in_several_directories_are_told_apart(machine: Machine) -> None:
    machine.node("sub1/x")
    plugin = of_paths(machine, "*/x")
    machine.node("sub2/x")
    before = found(plugin)
    assert 2 == len(before)
    (machine.dev / "sub1/x").unlink()
    (left,) = found(plugin).values()
    assert before[left.id].nodes == left.nodes


def test_groups_that_take_different_parts_of_a_device_have_different_ids(machine: Machine) -> None:
    usb = adapter(machine, "1-1", "ttyUSB0", "S")
    machine.behind_usb(usb, "1.1", "hidraw", "hidraw0")
    spec = "usb: [{vendor: 1a86, product: '7523'}]"
    plugin = machine.plugin(
        f"{{name: ab, groups: [{{{spec}, nodes: [tty]}}, {{{spec}, nodes: [hidraw]}}]}}"
    )
    assert {"ab-S/tty": ["ttyUSB0"], "ab-S/hidraw": ["hidraw0"]} == nodes(plugin)


def test_paths_that_are_one_resource_of_smarters_have_ids_of_their_own(
    machine: Machine, tmp_path: Path
) -> None:
    for name in ("a.b", "a_b"):
        machine.node(name)
    rule = "- {devicematch: '^a', nummaxdevices: 1}"
    plugin = machine.plugin_of(tmp_path / "c.yaml", rule)
    assert {"a.b-0": ["a.b"]} == nodes(plugin)
    (machine.dev / "a.b").unlink()
    (device,) = plugin.discover()
    assert ("a_b-0", "smarter-devices/a_b") == (device.id, device.resource)


class World:
    """A machine into which devices are plugged at random, and what its plugin calls them."""

    def __init__(self, root: Path) -> None:
        self.machine = Machine(root)
        self.sticks: dict[str, tuple[str, str]] = {}
        self.queues = [queue(self.machine, number) for number in (0, 1, 2)]
        self.enabled = {*self.queues}
        self.meaning: dict[str, object] = {}
        """Which device an id stands for, ever."""
        self.doubled: set[str] = set()
        """Serial numbers that the running plugin has seen twice."""
        self.names: dict[object, str] = {}
        """Ids of what was there at the last look."""
        self.restart()

    def restart(self) -> None:
        self.plugin = self.machine.plugin(TTYS, QUEUES)
        self.doubled, self.names = set(), {}
        self.seen: dict[str, object] = {}

    def plug(self, port: str, serial: str) -> None:
        """Plug a stick in, at first taking it out and freeing the port.

        The kernel gives its tty the first number that is free.
        """
        places = [one for one, (_, own) in self.sticks.items() if own == serial in {"S1", "S2"}]
        for place in {port, *places}:
            self.unplug(place)
        used = {int(path.name[6:]) for path in self.machine.dev.glob("ttyUSB*")}
        name = f"ttyUSB{min({0, 1, 2, 3} - used)}"
        usb = adapter(self.machine, port, name, serial)
        self.sticks[port] = usb, serial

    def unplug(self, port: str) -> None:
        if port in self.sticks:
            self.machine.unplug(self.sticks.pop(port)[0])

    def toggle(self, number: int) -> None:
        folder = self.queues[number]
        (disable if folder in self.enabled else enable)(self.machine, folder)
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


@pytest.mark.slow
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
