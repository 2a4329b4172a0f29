"""Devices by path: how many, under which ids, and what a container gets."""

import hashlib
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_generic.configuration.globs import PASSED_OVER
from discovered import found, reasons
from generic.plugin import Machine, make_node

NOT_THE_KERNELS = "where runtimes look for no devices: what is there is not the kernel's"


def entry(path: object, more: str = "", name: str = "ab") -> str:
    return f"{{name: {name}, id: serial, groups: [{{paths: [{{path: '{path}'{more}}}]}}]}}"


def test_an_entry_with_more_shares_than_the_kubelet_takes_leaves_the_others(
    machine: Machine,
) -> None:
    for name in ("ttyUSB0", "ttyUSB1", "ttyACM0"):
        machine.node(name)
    many = entry(machine.dev / "ttyUSB*").replace("groups: [{", "groups: [{count: 60000, ")
    plugin = machine.plugin(many, entry(machine.dev / "ttyACM0", name="bc"))
    for _ in range(2):
        assert ["squat.ai/bc"] == [device.resource for device in plugin.discover()]
        (told,) = plugin.shortfalls
        assert told.startswith("squat.ai/ab: 120000 shares have no room in the kubelet's list")
    for name in ("ttyUSB0", "ttyUSB1"):
        (machine.dev / name).unlink()
    assert (1, []) == (len([*plugin.discover()]), plugin.shortfalls)


def of_rules(machine: Machine, pattern: str) -> dp.Plugin:
    file = machine.dev.parent / "rules.yaml"
    return machine.plugin_of(file, f"- {{devicematch: '{pattern}', nummaxdevices: 1}}\n")


@pytest.mark.parametrize("above", ["", "bus/"])
def test_patterns_and_rules_pass_over_what_runtimes_pass_over(machine: Machine, above: str) -> None:
    folders = [f"{above}{folder}" for folder in sorted(PASSED_OVER)]
    for name in ("ttyUSB7", *(f"{one}/ttyUSB7" for one in folders), f"{above}x/ttyUSB7"):
        machine.node(name)
    patterns = [f"{above}*/ttyUSB*", f"{above}*/ttyUSB7", f"{above}*", f"{folders[0]}*/*"]
    plugin = machine.plugin(
        *(entry(machine.dev / one, name=f"a{n}") for n, one in enumerate(patterns))
    )
    place = machine.dev / above
    found = {node.host_path for device in plugin.discover() for node in device.nodes}
    assert {str(place / "x"), str(place / "x/ttyUSB7")} <= found
    watched = {*map(str, plugin.watch_paths)}
    assert {str(place), str(place / "x")} <= watched
    assert [] == [path for path in found | watched if PASSED_OVER & {*path.split("/")}]
    rules = of_rules(machine, "ttyUSB[0-9]+")
    prefix = above.replace("/", "_")
    assert {"smarter-devices/ttyUSB7", f"smarter-devices/{prefix}x_ttyUSB7"} == {
        device.resource for device in rules.discover()
    }


def test_a_directory_of_a_rule_has_no_node_of_theirs(machine: Machine) -> None:
    for name in ("snd/timer", "snd/shm/timer"):
        machine.node(name)
    (device,) = of_rules(machine, "^snd$").discover()
    assert ["/dev/snd/timer"] == [node.container_path for node in device.nodes]


def test_such_names_mean_nothing_elsewhere_and_can_be_mounted(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "data/shm/fd").mkdir(parents=True)
    for pattern, path in ((f"{tmp_path}/data/*/f*", f"{tmp_path}/data/shm/fd"), ("/dev/shm",) * 2):
        plugin = machine.plugin(entry(pattern, ", type: Mount"))
        (device,) = plugin.discover()
        assert (True, [path]) == (bool(device.health), [one.host_path for one in device.mounts])
        assert Path(path) not in plugin.watch_paths, "what is below is not looked at"


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
def test_a_link_to_what_is_not_the_kernels_is_unhealthy(
    machine: Machine, target: str, reason: str
) -> None:
    dev, outside, link = machine.dev, machine.dev.parent / "outside", machine.dev / "link0"
    for path in (dev / "bus/x", dev / "bus/fd/x", dev / "shm/x", outside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (dev / "loop").symlink_to("shm/x")
    link.symlink_to(target)
    told = reason.format(dev=dev, outside=outside)
    expected = f"{link}: {told or 'not a device node'}"
    for pattern in (link, f"{dev}/link*"):
        assert {"ab-link0": expected} == reasons(machine.plugin(entry(pattern)))
    expected_of_rule = {"link0-0": f"{link}: {told}"} if told else {}
    assert expected_of_rule == reasons(of_rules(machine, "^link"))


def test_a_link_that_passes_through_there_is_unhealthy_wherever_it_leads(
    machine: Machine, tmp_path: Path
) -> None:
    machine.node("shm/x/data")  # a link to /dev/null
    (machine.dev / "link0").symlink_to("shm/x")
    (machine.dev / "out0").symlink_to(tmp_path / "out")
    (tmp_path / "out").symlink_to("/dev/null")
    (machine.dev / "loop0").symlink_to("loop0")
    plugin = machine.plugin(
        entry(f"{machine.dev}/link*/data", ", type: Mount"),
        entry(f"{machine.dev}/out*", name="cd"),
        entry(f"{machine.dev}/loop*", name="ef"),
    )
    dev = machine.dev
    assert {
        f"{dev}/link0/data: leads through {dev}/shm, {NOT_THE_KERNELS}",
        f"{dev}/out0: leads to {tmp_path}/out, which is not below {dev}",
        f"{dev}/loop0: Too many levels of symbolic links",
    } == set(reasons(plugin).values())


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


def test_ids_are_those_of_generic_device_plugin(machine: Machine) -> None:
    plugin = machine.plugin("{name: fuse, groups: [{count: 2, paths: [{path: /dev/null}]}]}")
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
        ("{path: a*}, {path: b*, limit: 2}", ["a1b1", "a2b2", "a3b1"]),
        ("{path: *}, {path: b*, limit: 3}", ["a1b1", "a2b2", "a3b1", "b1b2", "b2b1", "cb2"]),
        ("{path: c, limit: 5}", ["c"]),
        ("{path: a*}, {path: none}", []),
        ("{path: a*}, {path: none, optional: true}", ["a1", "a2", "a3"]),
        ("{path: none, optional: true}", []),
        ("{path: a*}, {path: c, optional: true}", ["a1c"]),
    ],
)
def test_paths_are_zipped_and_never_crossed(
    machine: Machine, paths: str, expected: list[str]
) -> None:
    for name in ("a1", "a2", "a3", "b1", "b2", "c"):
        machine.node(name)
    absolute = paths.replace("path: ", f"path: {machine.dev}/")
    devices = machine.plugin(f"{{name: ab, groups: [{{paths: [{absolute}]}}]}}").discover()
    found = ["".join(Path(node.host_path).name for node in device.nodes) for device in devices]
    assert expected == found


def test_of_groups_that_match_one_path_the_last_one_wins_and_usb_over_paths(
    machine: Machine,
) -> None:
    path = machine.node("x1")
    machine.usb("1-1", "1a86:7523", 7)
    stick = machine.dev / "bus/usb/001/007"
    *devices, of_stick = machine.plugin(f"""
        name: ab
        groups:
        - {{usb: [{{vendor: "1a86", product: "7523"}}]}}
        - {{count: 3, paths: [{{path: {path}, mountPath: /dev/first}}]}}
        - {{count: 2, paths: [{{path: {machine.dev}/x*, permissions: r}}]}}
        - {{paths: [{{path: {stick}}}]}}
        """).discover()
    assert [sha1(f"{share}{path}") for share in range(3)] == [device.id for device in devices]
    read_only = (dp.DeviceNode(str(path), permissions="r"),)
    assert [read_only, read_only, (dp.DeviceNode(str(path), "/dev/first", "mrw"),)] == [
        device.nodes for device in devices
    ]
    assert (sha1(f"0{stick}"), ["rw"]) == (of_stick.id, [one.permissions for one in of_stick.nodes])


def test_a_container_gets_nodes_and_mounts_as_the_configuration_says(machine: Machine) -> None:
    path = machine.node("x1")
    (device,) = machine.plugin(f"""
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


def test_a_path_that_is_no_device_is_unhealthy(machine: Machine) -> None:
    (machine.dev / "file").touch()
    (machine.dev / "link").symlink_to("nowhere")
    spec = f"{{name: ab, groups: [{{count: 2, paths: [{{path: {machine.dev}/*%s}}]}}]}}"
    file, link = f"{machine.dev}/file", f"{machine.dev}/link"
    wrong, gone = f"{file}: not a device node", f"{link}: No such file or directory"
    for more, expected in (("", [wrong, gone]), (", type: Mount", ["", gone])):
        plugin = machine.plugin(spec % more)
        assert {
            sha1(f"{share}{path}"): reason
            for path, reason in zip((file, link), expected, strict=True)
            for share in (0, 1)
        } == reasons(plugin)
        assert [machine.dev] == plugin.watch_paths


def test_a_directory_is_healthy_while_a_device_node_is_in_it(machine: Machine) -> None:
    folder = machine.dev / "snd"
    (folder / "by-path").mkdir(parents=True)
    (folder / "by-path/link").symlink_to("/dev/null")
    (folder / "plain").touch()
    plugin = machine.plugin(
        f"{{name: audio, groups: [{{count: 10, paths: [{{path: {folder}}}]}}]}}"
    )

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
    assert {str(machine.dev), *(str(folder / one) for one in (".", "by-path", "new"))} == {
        str(path) for path in plugin.watch_paths
    }
