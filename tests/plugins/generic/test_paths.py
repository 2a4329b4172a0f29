"""Devices by path: how many, under which ids, and what a container gets."""

import hashlib
from pathlib import Path

import pytest

import deviceplugin as dp
from discovered import found
from generic.plugin import Make, make_node
from hardware.tree import Hardware


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


def test_ids_are_those_of_generic_device_plugin(make: Make) -> None:
    plugin = make("{name: fuse, groups: [{count: 2, paths: [{path: /dev/null}]}]}")
    # printf 0/dev/null | sha1sum; printf 1/dev/null | sha1sum
    assert {
        "a05d4ff4e9b480f66fc87cca95ab63e584e86317": "squat.ai/fuse",
        "e1627eebaecf41ed6ae23c74c2434c44e50e222f": "squat.ai/fuse",
    } == {one: device.resource for one, device in found(plugin).items()}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("{path: a*}", ["a1", "a2", "a3"]),
        ("{path: a*}, {path: c}", ["a1c"]),
        ("{path: a*}, {path: c, limit: 2}", ["a1c", "a2c"]),
        ("{path: a*}, {path: c, limit: 10}", ["a1c", "a2c", "a3c"]),
        ("{path: a*}, {path: b*, limit: 2}", ["a1b1", "a2b2", "a3b1"]),
        ("{path: b*, limit: 2}, {path: a*}", ["b1a1", "b2a2", "b1a3"]),
        ("{path: *}, {path: b*, limit: 3}", ["a1b1", "a2b2", "a3b1", "b1b2", "b2b1", "cb2"]),
        ("{path: *}, {path: b*, limit: 2}", ["a1b1", "a2b2", "a3b1", "b1b2"]),
        ("{path: c, limit: 5}", ["c"]),
        ("{path: a*}, {path: none}", []),
        ("{path: a*}, {path: none, optional: true}", ["a1", "a2", "a3"]),
        ("{path: none, optional: true}", []),
        ("{path: a*}, {path: c, optional: true}", ["a1c"]),
    ],
)
def test_paths_are_zipped_and_never_crossed(
    make: Make, hardware: Hardware, paths: str, expected: list[str]
) -> None:
    for name in ("a1", "a2", "a3", "b1", "b2", "c"):
        hardware.node(name)
    absolute = paths.replace("path: ", f"path: {hardware.dev}/")
    devices = make(f"{{name: ab, groups: [{{paths: [{absolute}]}}]}}").discover()
    found = ["".join(Path(node.host_path).name for node in device.nodes) for device in devices]
    assert expected == found


def test_hits_that_are_used_again_take_turns_and_count_in_the_id(
    make: Make, hardware: Hardware
) -> None:
    for name in ("a1", "a2", "a3", "b1", "b2"):
        hardware.node(name)
    a, b = f"{hardware.dev}/a", f"{hardware.dev}/b"
    plugin = make(f"{{name: ab, groups: [{{paths: [{{path: {a}*}}, {{path: {b}*, limit: 2}}]}}]}}")
    expected = [sha1(text) for text in (f"0{a}1{b}1", f"0{a}2{b}2", f"0{a}3{b}1")]
    assert expected == list(found(plugin))


def test_of_groups_that_match_one_path_the_last_one_wins(make: Make, hardware: Hardware) -> None:
    path = hardware.node("x1")
    devices = list(
        make(f"""
            name: ab
            groups:
            - {{count: 3, paths: [{{path: {path}, mountPath: /dev/first}}]}}
            - {{count: 2, paths: [{{path: {hardware.dev}/x*, permissions: r}}]}}
        """).discover()
    )
    assert [sha1(f"{share}{path}") for share in range(3)] == [device.id for device in devices]
    assert [
        (dp.DeviceNode(str(path), permissions="r"),),
        (dp.DeviceNode(str(path), permissions="r"),),
        (dp.DeviceNode(str(path), "/dev/first", "mrw"),),
    ] == [device.nodes for device in devices]


def test_of_paths_and_usb_that_match_one_device_usb_wins(make: Make, hardware: Hardware) -> None:
    hardware.usb("1-1", "1a86:7523", 7)
    node = hardware.dev / "bus/usb/001/007"
    plugin = make(f"""
        name: ab
        groups:
        - {{usb: [{{vendor: "1a86", product: "7523"}}]}}
        - {{paths: [{{path: {node}}}]}}
        """)
    (device,) = plugin.discover()
    assert sha1(f"0{node}") == device.id
    assert ["rw"] == [one.permissions for one in device.nodes]


def test_shares_are_numbered_before_the_paths(make: Make, hardware: Hardware) -> None:
    one, two = hardware.node("x1"), hardware.node("x2")
    plugin = make(f"{{name: ab, groups: [{{count: 2, paths: [{{path: {hardware.dev}/x*}}]}}]}}")
    expected = [sha1(text) for text in (f"0{one}", f"1{one}", f"0{two}", f"1{two}")]
    assert expected == list(found(plugin))


def test_a_container_gets_nodes_and_mounts_as_the_configuration_says(
    make: Make, hardware: Hardware
) -> None:
    path = hardware.node("x1")
    (device,) = make(f"""
        name: ab
        groups:
        - paths:
          - {{path: {path}}}
          - {{path: {path}, mountPath: /dev/inside, permissions: r}}
          - {{path: {path}, mountPath: /devices/}}
          - {{path: /etc, type: Mount, mountPath: /host, readOnly: true}}
        """).discover()
    assert (
        dp.DeviceNode(str(path), permissions="mrw"),
        dp.DeviceNode(str(path), "/dev/inside", "r"),
        dp.DeviceNode(str(path), "/devices/x1", "mrw"),
    ) == device.nodes
    assert (dp.Mount("/etc", "/host", read_only=True),) == device.mounts
    assert device.health
    assert sha1(f"0{path}{path}{path}/etc") == device.id


def test_a_path_that_is_no_device_is_unhealthy(make: Make, hardware: Hardware) -> None:
    (hardware.dev / "file").touch()
    (hardware.dev / "link").symlink_to("nowhere")
    plugin = make(f"{{name: ab, groups: [{{paths: [{{path: {hardware.dev}/*}}]}}]}}")
    assert [
        f"{hardware.dev}/file: not a device node",
        f"{hardware.dev}/link: No such file or directory",
    ] == [device.health.reason for device in plugin.discover()]


def test_a_directory_is_healthy_while_a_device_node_is_in_it(
    make: Make, hardware: Hardware
) -> None:
    folder = hardware.dev / "snd"
    (folder / "by-path").mkdir(parents=True)
    (folder / "by-path/link").symlink_to("/dev/null")
    (folder / "plain").touch()
    plugin = make(f"{{name: audio, groups: [{{count: 10, paths: [{{path: {folder}}}]}}]}}")

    def reasons() -> set[str]:
        return {device.health.reason for device in plugin.discover()}

    nothing = {f"{folder}: no device node in this directory"}
    assert nothing == reasons()
    for node in (folder / "controlC0", folder / "by-path/pcm", folder / "new/pcm"):
        make_node(node)
        assert {""} == reasons()
        node.unlink()
        assert nothing == reasons()
    expected = [sha1(f"{share}{folder}") for share in range(10)]
    assert expected == [device.id for device in plugin.discover()]
    assert {(dp.DeviceNode(str(folder), permissions="mrw"),)} == {
        device.nodes for device in plugin.discover()
    }
    assert {str(hardware.dev), *(str(folder / one) for one in (".", "by-path", "new"))} == {
        str(path) for path in plugin.watch_paths
    }


def test_what_is_below_a_mounted_directory_is_not_looked_at(make: Make, hardware: Hardware) -> None:
    (hardware.dev / "data/below").mkdir(parents=True)
    spec = f"{{path: {hardware.dev}/data, type: Mount}}"
    plugin = make(f"{{name: ab, groups: [{{paths: [{spec}]}}]}}")
    assert [True] == [bool(device.health) for device in plugin.discover()]
    assert [hardware.dev] == plugin.watch_paths


def test_a_mount_that_is_gone_is_unhealthy(make: Make, hardware: Hardware) -> None:
    (hardware.dev / "link").symlink_to("nowhere")
    plugin = make(f"{{name: ab, groups: [{{paths: [{{path: {hardware.dev}/*, type: Mount}}]}}]}}")
    (device,) = plugin.discover()
    assert f"{hardware.dev}/link: No such file or directory" == device.health.reason


def test_directories_of_patterns_are_watched(make: Make, hardware: Hardware) -> None:
    plugin = make(f"{{name: ab, groups: [{{paths: [{{path: {hardware.dev}/x*}}]}}]}}")
    assert [hardware.dev] == plugin.watch_paths
