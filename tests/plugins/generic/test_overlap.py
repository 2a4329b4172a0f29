"""What is one device, whatever it is called in two entries."""

from collections.abc import Iterable

import pytest

import deviceplugin as dp
from generic.plugin import Machine

ZERO, FULL = "/dev/zero", "/dev/full"
AA, BB = "squat.ai/aa", "squat.ai/bb"


def link(machine: Machine, name: str, target: str) -> str:
    path = machine.dev / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return str(path)


def entry(name: str, *groups: str) -> str:
    return f"{{name: {name}, groups: [{', '.join(groups)}]}}"


def of_paths(*paths: str) -> str:
    return f"{{paths: [{', '.join(f'{{path: {path}}}' for path in paths)}]}}"


def reasons(devices: Iterable[dp.Device]) -> list[tuple[str, str]]:
    return [(device.resource, device.health.reason) for device in devices]


BOTH = [(AA, f"also matched by {BB}"), (BB, f"also matched by {AA}")]


def test_a_link_and_its_target_are_one_device(machine: Machine) -> None:
    node = link(machine, "ttyUSB0", ZERO)
    for other in (node, link(machine, "zigbee2", node)):
        one, two = entry("aa", of_paths(f"{machine.dev}/ttyUSB*")), entry("bb", of_paths(other))
        assert [(AA, ""), (BB, "")] == reasons(machine.plugin(one, two).discover())
        assert [(AA, "")] == reasons(machine.plugin(one, two, overlap="first").discover())
        assert BOTH == reasons(machine.plugin(one, two, overlap="refuse").discover())


def test_two_groups_of_one_entry_can_match_one_device(machine: Machine) -> None:
    node = link(machine, "ttyUSB0", ZERO)
    other = link(machine, "ttyUSB1", FULL)
    by_id = link(machine, "serial/by-id/usb-stick", node)
    groups = of_paths(f"{machine.dev}/ttyUSB*"), of_paths(f"{machine.dev}/serial/by-id/*")

    first = machine.plugin(entry("aa", *groups), overlap="first").discover()
    assert [node, other] == [device.nodes[0].host_path for device in first]
    refused = machine.plugin(entry("aa", *groups), overlap="refuse").discover()
    healthy = {device.nodes[0].host_path: bool(device.health) for device in refused}
    assert {node: False, other: True, by_id: False} == healthy


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("{paths: [{path: DEV/dri}]}", "{paths: [{path: DEV/dri/card0}]}", BOTH),
        (
            "{usb: [{vendor: 1a86, product: '7523'}]}",
            "{paths: [{path: DEV/ttyUSB*}]}",
            [*BOTH, (BB, "")],
        ),
        ("{paths: [{path: /etc, type: Mount}]}", "{paths: [{path: /etc, type: Mount}]}", BOTH),
        (
            "{paths: [{path: /dev/null, limit: 2}, {path: DEV/ttyUSB*}]}",
            "{paths: [{path: /dev/null}]}",
            [(AA, ""), (AA, ""), (BB, "")],
        ),
    ],
    ids=["what is below", "the terminal of an adapter", "a mount", "a path for several"],
)
def test_what_is_one_device_is_refused(
    machine: Machine, one: str, other: str, expected: list[tuple[str, str]]
) -> None:
    for name, target in (("dri/card0", ZERO), ("ttyUSB0", ZERO), ("ttyUSB1", FULL)):
        link(machine, name, target)
    usb = machine.usb("1-1", "1a86:7523", 7)
    machine.behind_usb(usb, "1.0", "tty", "ttyUSB0", driver="ch341")
    groups = [text.replace("DEV", str(machine.dev)) for text in (one, other)]
    entries = entry("aa", groups[0]), entry("bb", groups[1])
    assert expected == reasons(machine.plugin(*entries, overlap="refuse").discover())


def test_what_is_not_offered_takes_nothing_from_others(machine: Machine) -> None:
    one, two, three = (
        entry("aa", of_paths(ZERO)),
        entry("bb", of_paths(ZERO, FULL)),
        entry("cc", of_paths(link(machine, "full", FULL))),
    )
    found = machine.plugin(one, two, three, overlap="first").discover()
    assert [(AA, ""), ("squat.ai/cc", "")] == reasons(found)


def test_a_second_stick_of_a_group_does_not_give_the_first_out_again(machine: Machine) -> None:
    link(machine, "bus/usb/001/007", ZERO)
    link(machine, "bus/usb/001/008", FULL)
    plugin = machine.plugin(entry("aa", "{usb: [{vendor: 1a86, product: '7523'}]}"))
    machine.usb("1-1", "1a86:7523", 7)
    (one,) = plugin.discover()
    machine.usb("1-2", "1a86:7523", 8)
    (both,) = plugin.discover()
    assert one.id != both.id
    assert set(one.hardware) < set(both.hardware)
