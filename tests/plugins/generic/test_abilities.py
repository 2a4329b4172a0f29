"""Devices by what they can do, as sysfs says."""

import re
from pathlib import Path

import pytest

from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_generic import explain
from deviceplugin_generic.discovery import abilities
from discovered import found
from generic.plugin import Machine, write_bits

CARD = "pci0000:00/0000:03:00.0"
KEYBOARD = {"key": "1000000000007 ff9f207ac14057ff febeffdfffefffff fffffffffffffffe"}
MOUSE = {"key": "ff0000 0 0 0 0", "rel": "1943"}
SCREEN = {"key": "400 0 0 0 0 0", "abs": "260800000000003", "properties": "2"}


def add_input(machine: Machine, number: int, bits: dict[str, str]) -> Path:
    """Make an input device with the bits that the kernel says of it, and its node."""
    path = f"pci0000:00/0000:00:14.0/input/input{number}"
    write_bits(machine.device(path, "input"), bits)
    return machine.device(f"{path}/event{number}", "input", node=f"input/event{number}")


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (KEYBOARD, "keyboard keys"),
        (MOUSE, "pointer"),
        (SCREEN, "touch"),
        ({"key": "10000000000000 0"}, "keys"),  # the power button
        ({"key": "e520 10000 0 0 0 0", "abs": "2e0800000000003", "properties": "5"}, "pointer"),
        ({"key": "1f0000 0 0 0 0", "abs": "3", "rel": "100"}, "pointer"),  # of a virtual machine
        ({"key": "c01 0 0 0 0 0", "abs": "3", "properties": "2"}, ""),  # a pen tablet
        ({"key": "7cdb000000000000 0 0 0 0", "abs": "3003f"}, "joystick"),
        ({"abs": "3", "properties": "40"}, ""),  # an accelerometer
        ({"key": "0"}, ""),
        ({"key": "../../etc/shadow"}, None),
        ({"key": f"{'f' * 17}"}, None),
        ({"rel": " ".join(["1"] * 65)}, None),
        ({"abs": "-3"}, None),
        ({"properties": ""}, None),
    ],
)
def test_an_input_device_can_do_what_its_bits_say(
    machine: Machine, bits: dict[str, str], expected: str | None
) -> None:
    folder = add_input(machine, 3, bits)
    device = Tree(Sysfs(machine.sys), dev=machine.dev).device(str(folder))
    assert (None if expected is None else {*expected.split()}) == abilities.in_sysfs(device)


def hardware(machine: Machine) -> None:
    machine.pci("0000:03:00.0", "1002:73bf", "030000", driver="amdgpu")
    for name in ("card0", "renderD128"):
        machine.device(f"{CARD}/drm/{name}", "drm", node=f"dri/{name}")
    machine.device(f"{CARD}/drm/card0/card0-HDMI-A-1", "drm")
    machine.device("platform/gpu", "platform", is_bus=True)
    machine.device("platform/gpu/drm/card1", "drm", node="dri/card1")
    machine.device(f"{CARD}/accel/accel0", "drm", node="accel/accel0")
    for card, names in ((0, ("pcmC0D0p", "controlC0")), (1, ("pcmC1D0c", "midiC1D0"))):
        path = f"{CARD}/sound/card{card}"
        machine.device(path, "sound")
        for name in names:
            machine.device(f"{path}/{name}", "sound", node=f"snd/{name}")
    for number, bits in enumerate((KEYBOARD, MOUSE, {"key": "x"})):
        add_input(machine, number, bits)
    machine.device("virtual/video4linux/v4l-subdev0", "video4linux", node="v4l-subdev0")


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("{subsystem: drm, can: render}", "renderD128"),
        ("{subsystem: drm, can: card}", "card0 card1"),
        ("{subsystem: drm, can: [card, display]}", "card0"),
        ("{subsystem: drm, not: {can: display}}", "accel0 card1 renderD128"),
        ("{subsystem: drm, not: [{can: render}, {can: display}]}", "accel0 card1"),
        ("{subsystem: drm, not: {can: card, driver: amdgpu}}", "accel0 card1 renderD128"),
        ("{subsystem: sound, can: playback}", "pcmC0D0p"),
        ("{subsystem: sound, can: [playback, capture]}", ""),
        ("{subsystem: sound, name: card*, can: midi}, nodes: [sound]", "midiC1D0 pcmC1D0c"),
        ("{subsystem: pci}, nodes: [{subsystem: sound, can: capture}]", "pcmC1D0c"),
        ("{subsystem: input, can: keyboard}", "event0 event2"),
        ("{subsystem: input, not: {can: keys}}", "event1 event2"),
        ("{subsystem: video4linux, can: capture}", ""),
    ],
)
def test_a_selector_says_what_a_device_can_do(machine: Machine, select: str, expected: str) -> None:
    hardware(machine)
    plugin = machine.plugin(f"{{name: ab, groups: [{{select: {select}}}]}}")
    nodes = {Path(node.host_path).name for one in plugin.discover() for node in one.nodes}
    assert expected.split() == sorted(nodes)
    unknown = f"{machine.dev}/input/event2: unknown what it can do, so that every entry has it: "
    assert plugin.shortfalls == ([f"{unknown}sysfs does not say it"] if "input" in select else [])


def test_two_entries_can_differ_in_abilities_alone(machine: Machine) -> None:
    hardware(machine)
    entries = [
        f"{{name: {name}, groups: [{{select: {{subsystem: drm, can: {name}}}}}]}}"
        for name in ("card", "display", "render")
    ]
    plugin = machine.plugin(*entries, overlap="refuse")
    assert {
        "card-0000:03:00.0/card0": ("also matched by squat.ai/display", "card,display"),
        "card-gpu/card1": ("", "card"),
        "display-0000:03:00.0/card0": ("also matched by squat.ai/card", "card,display"),
        "render-0000:03:00.0/renderD128": ("", "render"),
    } == {name: (one.health.reason, one.attributes["can"]) for name, one in found(plugin).items()}


def test_a_sound_card_that_has_no_node_says_what_it_can(machine: Machine) -> None:
    hardware(machine)
    select = "{subsystem: sound, name: card*, can: midi}"
    plugin = machine.plugin(f"{{name: ab, groups: [{{select: {select}, nodes: [sound]}}]}}")
    assert ["capture,midi"] == [one.attributes["can"] for one in plugin.discover()]


def test_groups_that_differ_in_abilities_alone_have_different_ids(machine: Machine) -> None:
    hardware(machine)
    groups = ", ".join(
        f"{{select: {{subsystem: pci}}, nodes: [{{subsystem: drm, {what}}}]}}"
        for what in ("can: card", "can: render", "not: {can: card}", "not: {can: render}")
    )
    plugin = machine.plugin(f"{{name: ab, groups: [{groups}]}}")
    assert 4 == len(found(plugin))


@pytest.mark.parametrize(
    ("path", "link"),
    [
        (CARD, "pci-0000:03:00.0"),
        ("pci0000:00/0000:00:01.0/0000:03:00.0", "pci-0000:03:00.0"),
        (
            "platform/soc/fd500000.pcie/pci0000:00/0000:03:00.0",
            "platform-fd500000.pcie-pci-0000:03:00.0",
        ),
        ("LNXSYSTM:00/VMBUS:00/a/pci0001:00/0001:00:00.0", "acpi-VMBUS:00-pci-0001:00:00.0"),
        ("pci0000:00/0000:00:0e.0/pci0000:e0/0000:e1:00.0", "pci-0000:00:0e.0-pci-0000:e1:00.0"),
        ("virtual", ""),
    ],
)
def test_a_drm_node_is_also_where_udev_links_it(machine: Machine, path: str, link: str) -> None:
    """By its place, which the nearest device of each bus says; the host may lack the links."""
    places = path.split("/")
    for depth, name in enumerate(places):
        buses = {"VMBUS": "acpi", "LNXSY": "acpi", "soc": "platform", "fd500": "platform"}
        if subsystem := "pci" if name.startswith("000") else buses.get(name[:5]):
            machine.device("/".join(places[: depth + 1]), subsystem, is_bus=True)
    machine.device(f"{path}/drm/renderD128", "drm", node="dri/renderD128")
    (device,) = machine.plugin(
        "{name: ab, groups: [{select: {subsystem: drm}, mountPath: /dev/gpu, permissions: r}]}"
    ).discover()
    expected = ["/dev/gpu", *([f"/dev/dri/by-path/{link}-render"] if link else [])]
    assert [(f"{machine.dev}/dri/renderD128", one, "r") for one in expected] == [
        (one.host_path, one.container_path, one.permissions) for one in device.nodes
    ]


def test_a_link_that_two_nodes_could_have_is_that_of_none(machine: Machine) -> None:
    """They could be in one container, which cannot have both at one path."""
    machine.pci("0000:03:00.0", "1002:73bf", "030000")
    for name in ("card0", "card1", "renderD128"):
        machine.device(f"{CARD}/drm/{name}", "drm", node=f"dri/{name}")
    plugin = machine.plugin("{name: ab, groups: [{select: {subsystem: drm}}]}")
    given = plugin.allocate(list(plugin.discover()))
    assert ["/dev/dri/by-path/pci-0000:03:00.0-render"] == [
        one.container_path for one in given.nodes if "by-path" in one.container_path
    ]


def test_a_drm_node_that_is_given_by_its_link_also_has_its_own_name(machine: Machine) -> None:
    machine.pci("0000:03:00.0", "1002:73bf", "030000")
    folder = machine.device(f"{CARD}/drm/card1", "drm", node="dri/card1")
    (machine.sys / "dev/char/1:3").symlink_to(folder)
    link = machine.dev / "dri/by-path/pci-0000:03:00.0-card"
    link.parent.mkdir()
    link.symlink_to("../card1")
    plugin = machine.plugin(f"{{name: ab, groups: [{{paths: [{{path: '{link}'}}]}}]}}")
    (device,) = plugin.discover()
    assert [str(link), "/dev/dri/by-path/pci-0000:03:00.0-card", "/dev/dri/card1"] == [
        one.container_path for one in device.nodes
    ]


def test_a_renamed_node_is_logged_when_the_plugin_starts(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    path = "{path: /dev/dri/card1, mountPath: /dev/dri/card0}"
    plugin = machine.plugin(f"{{name: ab, groups: [{{paths: [{path}]}}]}}")
    for _ in range(3):
        list(plugin.discover())
    assert [True] == [
        str(vars(record)["reason"]).startswith(
            "ab: /dev/dri/card1 is /dev/dri/card0 in the container: libdrm"
        )
        for record in caplog.records
        if record.message == "configuration questionable"
    ]


def test_explain_says_what_an_input_device_is_and_finds_it_by_that(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, bits in enumerate((KEYBOARD, MOUSE, {"key": "x"})):
        add_input(machine, number, bits)
    root = str(machine.sys.parent)
    assert 0 == explain(["--root", root, "--all", "--subsystem", "input"])
    text = capsys.readouterr().out
    for listed in ("event0: keyboard keys)", "event1: pointer)", "event2)"):
        assert f"/dev/input/{listed}" in text
    assert 0 == explain(["--root", root, "pointer"])
    assert ["/dev/input/event1:"] == re.findall(r"/dev/input/event\d:?", capsys.readouterr().out)
