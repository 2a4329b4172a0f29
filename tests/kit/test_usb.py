"""USB devices, and ids that never come to mean another device."""

from collections.abc import Callable

import pytest

from deviceplugin.kit import usb
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.usb import Ledger, Stem, Units
from hardware.tree import Hardware

Look = Callable[[], Tree]


def named(
    ledger: Ledger, tree: Tree, *, subsystem: str = "tty", by_serial: bool = True
) -> list[str]:
    """Return what the devices of a subsystem are called."""
    units = Units(tree)
    return ledger.names(
        [usb.stem(one, units, by_serial=by_serial) for one in tree.subsystem(subsystem)]
    )


def adapter(hardware: Hardware, port: str, number: int, serial: str = "") -> str:
    unit = hardware.usb(port, "1a86:7523", number, serial=serial)
    hardware.behind_usb(unit, "1.0", "tty", f"ttyUSB{number}")
    return unit


def only(look: Look, subsystem: str) -> Device:
    (found,) = look().subsystem(subsystem)
    return found


# Devices.


def test_units_are_devices_without_their_interfaces(hardware: Hardware, look: Look) -> None:
    adapter(hardware, "1-1", 2, "A")
    assert ["usb1", "1-1"] == [one.name for one in Units(look()).all]
    assert "1.0" == usb.interface(only(look, "tty"))


def test_the_node_on_the_bus_is_by_the_numbers_of_now(hardware: Hardware, look: Look) -> None:
    adapter(hardware, "1-1", 7)
    unit = Units(look()).all[1]
    assert f"{hardware.dev}/bus/usb/001/007" == usb.bus_node(unit, hardware.dev)
    assert "" == usb.bus_node(only(look, "tty"), hardware.dev)


def test_the_part_of_a_unit_is_told_by_what_outlasts_a_new_plug(
    hardware: Hardware, look: Look
) -> None:
    unit = hardware.usb("1-1", "046d:0825", 2)
    for number in (0, 1):
        hardware.behind_usb(unit, "1.0", "video4linux", f"video{number}", index=str(number))
    folder = hardware.behind_usb(unit, "1.1", "tty", "ttyUSB0")
    (folder / "port_number").write_text("1\n")
    hardware.behind_usb(unit, "1.2", "input", "event3")
    tree = look()
    assert ["0", "1"] == [usb.index(one) for one in tree.subsystem("video4linux")]
    assert ("1", "event") == (usb.index(only(look, "tty")), usb.index(only(look, "input")))


def test_a_device_behind_a_receiver_is_told_by_it(hardware: Hardware, look: Look) -> None:
    unit = hardware.usb("1-1", "046d:c52b", 2)
    receiver = f"{unit}/1-1:1.0/0003:046D:C52B.0001"
    hardware.device(f"{unit}/1-1:1.0", "usb", attributes={"bInterfaceNumber": "00"}, is_bus=True)
    hardware.device(receiver, "hid", is_bus=True)
    hardware.device(f"{receiver}/0003:046D:4082.0002", "hid", is_bus=True)
    hardware.device(f"{receiver}/0003:046D:4082.0002/hidraw/hidraw1", "hidraw", node="hidraw1")
    assert "0003:046D:4082" == usb.index(only(look, "hidraw"))


# Names.


def test_a_serial_number_is_a_name_at_any_port(hardware: Hardware, look: Look) -> None:
    ledger, unit = Ledger(), adapter(hardware, "1-1", 2, "A/1")
    assert ["A%2F1:1.0"] == named(ledger, look())
    hardware.unplug(unit)
    assert [] == named(ledger, look())
    adapter(hardware, "1-2", 3, "A/1")
    assert ["A%2F1:1.0"] == named(ledger, look())
    assert ["1-2:1.0"] == named(Ledger(), look(), by_serial=False)


def test_a_second_device_of_a_number_is_told_by_its_port_and_renames_none(
    hardware: Hardware, look: Look
) -> None:
    ledger, first = Ledger(), adapter(hardware, "1-1", 2, "A")
    assert ["A:1.0"] == named(ledger, look())
    adapter(hardware, "1-2", 3, "A")
    assert ["A:1.0", "A@1-2:1.0"] == named(ledger, look())
    hardware.unplug(first)
    assert ["A@1-2:1.0"] == named(ledger, look())
    adapter(hardware, "1-1", 4, "A")
    assert ["A@1-1:1.0", "A@1-2:1.0"] == named(ledger, look())


@pytest.mark.parametrize(("serial", "name"), [("", "1-1:1.0"), ("1-2", "1-2@1-1:1.0")])
def test_without_a_serial_number_or_with_one_that_looks_like_a_port_the_port_is_in_the_name(
    hardware: Hardware, look: Look, serial: str, name: str
) -> None:
    adapter(hardware, "1-1", 2, serial)
    assert [name] == named(Ledger(), look())


def test_parts_that_the_kernel_counts_are_told_by_its_names_once_there_are_two(
    hardware: Hardware, look: Look
) -> None:
    ledger, unit = Ledger(), adapter(hardware, "1-1", 2, "A")
    assert ["A:1.0"] == named(ledger, look())
    hardware.behind_usb(unit, "1.0", "tty", "ttyUSB9")
    assert ["A:1.0", "A:1.0/ttyUSB9"] == named(ledger, look())


def test_a_device_of_another_bus_is_told_by_its_own_name(hardware: Hardware, look: Look) -> None:
    hardware.pci("0000:6a:01.0", "8086:0b25", "088000")
    for name in ("wq0.0", "wq0.1"):
        hardware.device(f"pci0000:00/0000:6a:01.0/dsa0/{name}", "dsa", node=f"dsa/{name}")
    assert ["0000:6a:01.0/wq0.0", "0000:6a:01.0/wq0.1"] == named(Ledger(), look(), subsystem="dsa")
    units, (queue, _) = Units(look()), look().subsystem("dsa")
    given = usb.stem(queue, units, port="0000:6a:00.0", part="vfio")
    assert ("0000:6a:00.0/wq0.0/vfio", "0000:6a:00.0/wq0.0/vfio") == (given.full, given.slot)


def test_all_of_a_stem_tells_it_from_any_other() -> None:
    stem = Stem("A", port="1-1", tail=":1.0", name="ttyUSB0")
    assert "A@1-1:1.0/ttyUSB0" == stem.full
    assert "1-1:1.0" == stem.slot
