"""Devices by path: how many, under which ids, and what a container gets."""

import hashlib
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.globs import PASSED_OVER
from discovered import found, reasons
from generic.plugin import Make, make_node
from hardware.tree import Hardware

NOT_THE_KERNELS = "where runtimes look for no devices: what is there is not the kernel's"


def entry(path: object, more: str = "") -> str:
    return f"{{name: ab, id: serial, groups: [{{paths: [{{path: '{path}'{more}}}]}}]}}"


def of_rules(hardware: Hardware, file: Path, pattern: str) -> GenericPlugin:
    file.write_text(f"- {{devicematch: '{pattern}', nummaxdevices: 1}}\n")
    roots = Roots(hardware.dev, hardware.sys, hardware.udev)
    return GenericPlugin(GenericSettings.of_file(file), roots)


@pytest.mark.parametrize("above", ["", "bus/"])
def test_patterns_and_rules_pass_over_what_runtimes_pass_over(
    make: Make, hardware: Hardware, tmp_path: Path, above: str
) -> None:
    folders = [f"{above}{folder}" for folder in sorted(PASSED_OVER)]
    for name in ("ttyUSB7", *(f"{one}/ttyUSB7" for one in folders), f"{above}x/ttyUSB7"):
        hardware.node(name)
    patterns = [
        f"{above}*/ttyUSB*",
        f"{above}*/ttyUSB7",
        f"{above}*",
        *(f"{x}*/*" for x in folders),
    ]
    entries = [entry(hardware.dev / pattern).replace("ab", f"a{n}") for n, pattern in
               enumerate(patterns)]  # fmt: skip
    plugin = make(*entries)
    found = {node.host_path for device in plugin.discover() for node in device.nodes}
    assert {f"{hardware.dev}/{above}x", f"{hardware.dev}/{above}x/ttyUSB7"} == {
        path for path in found if path.startswith(f"{hardware.dev}/{above}x")
    }
    assert [] == [path for path in found if PASSED_OVER & {*path.split("/")}]
    assert {f"{hardware.dev}/{above}x", str(hardware.dev / above)} <= {
        str(path) for path in plugin.watch_paths
    }
    assert not any(PASSED_OVER & {*Path(path).parts} for path in plugin.watch_paths)
    rules = of_rules(hardware, tmp_path / "rules.yaml", "ttyUSB[0-9]+")
    prefix = above.replace("/", "_")
    assert {"smarter-devices/ttyUSB7", f"smarter-devices/{prefix}x_ttyUSB7"} == {
        device.resource for device in rules.discover()
    }


def test_a_directory_of_a_rule_has_no_node_of_theirs(hardware: Hardware, tmp_path: Path) -> None:
    for name in ("snd/timer", "snd/shm/timer"):
        hardware.node(name)
    (device,) = of_rules(hardware, tmp_path / "rules.yaml", "^snd$").discover()
    assert ["/dev/snd/timer"] == [node.container_path for node in device.nodes]


def test_such_names_mean_nothing_elsewhere_and_can_be_mounted(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data/shm/fd").mkdir(parents=True)
    for pattern, path in ((f"{tmp_path}/data/*/f*", f"{tmp_path}/data/shm/fd"), ("/dev/shm",) * 2):
        (device,) = make(entry(pattern, ", type: Mount")).discover()
        assert (True, [path]) == (bool(device.health), [one.host_path for one in device.mounts])


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("shm/x", "leads through {dev}/shm, " + NOT_THE_KERNELS),
        ("bus/fd/x", "leads through {dev}/bus/fd, " + NOT_THE_KERNELS),
        ("../outside", "leads to {outside}, which is not below {dev}"),
        ("bus/x", ""),
        ("loop", "leads through {dev}/shm, " + NOT_THE_KERNELS),
    ],
)
@pytest.mark.parametrize("by", ["name", "pattern", "rule"])
def test_a_link_to_what_is_not_the_kernels_is_unhealthy(
    make: Make, hardware: Hardware, tmp_path: Path, target: str, reason: str, by: str
) -> None:
    for name in ("bus/x", "bus/fd/x", "shm/x"):
        hardware.node(name)
        (hardware.dev / name).unlink()
        (hardware.dev / name).touch()
    outside = hardware.dev.parent / "outside"
    outside.touch()
    (hardware.dev / "loop").symlink_to("shm/x")
    link = hardware.dev / "link0"
    link.symlink_to(target)
    plugin = (
        of_rules(hardware, tmp_path / "rules.yaml", "^link")
        if by == "rule"
        else make(entry(link if by == "name" else f"{hardware.dev}/link*"))
    )
    expected = reason.format(dev=hardware.dev, outside=outside)
    plain = {} if by == "rule" else {"ab-link0": f"{link}: not a device node"}
    name = "link0-0" if by == "rule" else "ab-link0"
    assert ({name: f"{link}: {expected}"} if expected else plain) == reasons(plugin)


def test_a_link_that_passes_through_there_is_unhealthy_wherever_it_leads(
    make: Make, hardware: Hardware, tmp_path: Path
) -> None:
    hardware.node("shm/x/data")  # a link to /dev/null
    (hardware.dev / "link0").symlink_to("shm/x")
    (hardware.dev / "out0").symlink_to(tmp_path / "out")
    (tmp_path / "out").symlink_to("/dev/null")
    (hardware.dev / "loop0").symlink_to("loop0")
    plugin = make(
        entry(f"{hardware.dev}/link*/data", ", type: Mount"),
        entry(f"{hardware.dev}/out*").replace("ab", "cd"),
        entry(f"{hardware.dev}/loop*").replace("ab", "ef"),
    )
    dev = hardware.dev
    assert {
        f"{dev}/link0/data: leads through {dev}/shm, {NOT_THE_KERNELS}",
        f"{dev}/out0: leads to {tmp_path}/out, which is not below {dev}",
        f"{dev}/loop0: Too many levels of symbolic links",
    } == set(reasons(plugin).values())


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
    spec = f"{{name: ab, groups: [{{count: 2, paths: [{{path: {hardware.dev}/*%s}}]}}]}}"
    file, link = f"{hardware.dev}/file", f"{hardware.dev}/link"
    wrong, gone = f"{file}: not a device node", f"{link}: No such file or directory"
    for more, expected in (("", [wrong, gone]), (", type: Mount", ["", gone])):
        plugin = make(spec % more)
        assert {
            sha1(f"{share}{path}"): reason
            for path, reason in zip((file, link), expected, strict=True)
            for share in (0, 1)
        } == reasons(plugin)
        assert [hardware.dev] == plugin.watch_paths


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
