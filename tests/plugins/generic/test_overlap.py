"""What is one device, whatever it is called: in two entries, and while a pod holds it."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import Pod
from generic.plugin import Machine
from patience import eventually

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


# While a pod holds it.

POD = Pod.of("first", main={AA: 1})
SETTINGS: dict[str, Any] = {
    "pod_resources_interval": timedelta(milliseconds=50),
    "vanished_grace": timedelta(milliseconds=50),
    "http_address": "127.0.0.1:0",
}


def state(node: Node) -> Mapping[str, str]:
    """The reasons of all devices, by what they consist of."""
    return {
        "+".join(Path(path).name for path in device["nodes"]): device["reason"]
        for resource in node.host.inventory()["resources"]
        for device in resource["devices"]
    }


def wait_for_state(node: Node, **expected: str) -> None:
    def matches() -> bool:
        found = {name.replace("+", "_"): reason for name, reason in state(node).items()}
        return found.keys() == expected.keys() and all(
            found[name].startswith(reason) and bool(found[name]) == bool(reason)
            for name, reason in expected.items()
        )

    eventually(matches, f"{expected}")


def test_an_optional_path_that_appears_does_not_give_the_device_out_again(
    machine: Machine, kubelet: Kubelet
) -> None:
    stick = link(machine, "stick", ZERO)
    group = f"{{paths: [{{path: {stick}}}, {{path: {machine.dev}/extra, optional: true}}]}}"
    with kubelet.running(machine.plugin(entry("aa", group)), **SETTINGS) as node:
        eventually(lambda: 1 == len(node.kubelet.healthy(AA)), "the device")
        assert node.kubelet.run(POD)
        link(machine, "extra", FULL)
        wait_for_state(node, stick="its device node is offered", stick_extra="held as ")
        assert not node.kubelet.run(Pod.of("second", main={AA: 1}))


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


def test_a_path_that_a_reload_adds_does_not_give_the_device_out_again(
    machine: Machine, kubelet: Kubelet
) -> None:
    stick, extra = link(machine, "stick", ZERO), link(machine, "extra", FULL)
    before = machine.plugin(entry("aa", of_paths(stick)))
    with kubelet.running(before, **SETTINGS) as node:
        eventually(lambda: 1 == len(node.kubelet.healthy(AA)), "the device")
        assert node.kubelet.run(POD)
        node.host.replace([machine.plugin(entry("aa", of_paths(stick, extra)))])
        wait_for_state(node, stick="its device node is offered", stick_extra="held as ")

        node.host.replace([machine.plugin(entry("bb", of_paths(link(machine, "alias", stick))))])
        wait_for_state(node, stick="its device node is offered as", alias="held as ")

        node.kubelet.terminate(POD)
        eventually(lambda: 1 == len(node.kubelet.healthy(BB)), "the device to be free")
