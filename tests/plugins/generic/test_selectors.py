"""What selectors leave out, what is behind a device, and the nodes that all devices need."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

import deviceplugin as dp
import deviceplugin_generic
from deviceplugin.kit.configuration import of_text
from deviceplugin_generic.configuration import loading
from deviceplugin_testing.fixture import Kubelet
from discovered import found
from generic.plugin import Make
from hardware.tree import Hardware
from patience import PATIENCE

SCHEMA = json.loads(Path(deviceplugin_generic.__file__).with_name("schema.json").read_text())
ENTRY = "devices: [{name: ab, groups: [%s]}]\n"
GROUP = "devices[0].groups[0]"
GOOD = [
    "{select: {subsystem: drm, not: {name: 'card*'}}}",
    "{select: {subsystem: drm, not: [{name: 'card*'}, {vendor: '1a03', driver: ast}]}}",
    "{select: {subsystem: drm, attributes: {physfn: null, x: '1'}, properties: {A: null}}}",
    "{select: {subsystem: pci}, nodes: [drm, {subsystem: sound, name: 'pcm*', not: {name: a}}]}",
    "{select: {subsystem: pci}, nodes: [drm], with: [/dev/kfd, /dev/infiniband/rdma_cm]}",
    "{usb: [{vendor: a, product: b}], with: [/dev/vhost-net]}",
]
BAD = {
    "{select: {subsystem: drm, not: {}}}": f"{GROUP}.select.not: is empty",
    "{select: {subsystem: drm, not: []}}": f"{GROUP}.select.not: is empty",
    "{select: {subsystem: drm, not: card}}": f"{GROUP}.select.not: 'card' is not a mapping with "
    "keys, or a list",
    "{select: {subsystem: drm, not: {nam: x}}}": f"{GROUP}.select.not.nam: unknown key: did you "
    "mean 'name'?",
    "{select: {subsystem: drm, not: [{subsystem: tty}]}}": f"{GROUP}.select.not[0].subsystem: "
    "unknown key: known are name, vendor, product, serial, driver, class, link, properties, "
    "attributes",
    "{select: {subsystem: null, name: a}}": f"{GROUP}.select: subsystem is missing",
    "{select: {subsystem: pci}, nodes: [{name: x}]}": f"{GROUP}.nodes[0]: subsystem is missing",
    "{select: {subsystem: pci}, with: [kfd]}": f"{GROUP}.with[0]: 'kfd' is not the path of one "
    "device node below /dev",
    "{select: {subsystem: pci}, with: ['/dev/dri/*']}": f"{GROUP}.with[0]: '/dev/dri/*' is not the "
    "path of one device node below /dev",
    "{paths: [{path: /x}], with: [/dev/kfd]}": f"{GROUP}.with: is for usb and select only",
}


def names(device: dp.Device) -> list[str]:
    return [Path(node.host_path).name for node in device.nodes]


def graphics(hardware: Hardware, address: str, number: int, driver: str = "xe") -> str:
    """Make a graphics card with its two nodes."""
    hardware.pci(address, "8086:56c0", "038000", driver=driver)
    path = f"pci0000:00/{address}"
    hardware.device(f"{path}/drm/card{number}", "drm", node=f"dri/card{number}")
    hardware.device(f"{path}/drm/renderD{number}", "drm", node=f"dri/renderD{number}")
    return path


def refuse_faults(text: str) -> None:
    root = of_text(text)
    loading.read(root)
    root.faults.refuse()


@pytest.mark.parametrize("group", GOOD)
def test_what_is_well_is_taken(group: str) -> None:
    text = ENTRY % group
    refuse_faults(text)
    assert Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize(("group", "expected"), BAD.items())
def test_what_is_wrong_is_told_with_its_key(group: str, expected: str) -> None:
    text = ENTRY % group
    with pytest.raises(dp.ConfigError) as raised:
        refuse_faults(text)
    assert expected == str(raised.value)
    assert not Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ("", ["03", "04", "05"]),
        ("attributes: {sriov_numvfs: '[1-9]*'}", ["03"]),
        ("not: {attributes: {sriov_numvfs: '[1-9]*'}}", ["04", "05"]),
        ("attributes: {sriov_numvfs: null}", ["05"]),
        ("not: {attributes: {sriov_numvfs: null}}", ["03", "04"]),
        ("not: {driver: xe}", ["04"]),
        ("not: {driver: xe, attributes: {sriov_numvfs: null}}", ["03", "04"]),
        ("not: [{driver: i915}, {attributes: {sriov_numvfs: null}}]", ["03"]),
        ("not: {vendor: '8086'}", []),
        ("not: {vendor: '10de'}", ["03", "04", "05"]),
    ],
)
def test_a_selector_says_what_is_left_out(
    make: Make, hardware: Hardware, criteria: str, expected: list[str]
) -> None:
    for number, driver, functions in ((3, "xe", "4"), (4, "i915", "0"), (5, "xe", "")):
        path = graphics(hardware, f"0000:0{number}:00.0", number, driver)
        if functions:
            (hardware.sys / "devices" / path / "sriov_numvfs").write_text(f"{functions}\n")
    entry = f"{{name: ab, groups: [{{select: {{subsystem: pci, {criteria}}}, nodes: [drm]}}]}}"
    assert expected == [str(device.attributes["port"])[5:7] for device in make(entry).discover()]


def test_what_is_left_out_is_noticed_when_it_changes_without_an_event(
    make: Make, hardware: Hardware
) -> None:
    path = graphics(hardware, "0000:03:00.0", 0)
    functions = hardware.sys / "devices" / path / "sriov_numvfs"
    functions.write_text("0\n")
    plugin = make(
        "{name: ab, groups: [{select: {subsystem: pci, not: {attributes: {sriov_numvfs: '4'}}}, "
        "nodes: [drm]}]}"
    )
    assert 1 == len(found(plugin))
    functions.write_text("4\n")
    assert {} == found(plugin)


def test_properties_that_must_be_unknown_are_looked_for_in_udevs_database(
    make: Make, hardware: Hardware
) -> None:
    hardware.device("virtual/one", "tty", node="one", properties={"A": "1"})
    hardware.device("virtual/two", "tty", node="two")
    plugin = make("{name: ab, groups: [{select: {subsystem: tty, properties: {A: null}}}]}")
    assert ["ab-two"] == list(found(plugin))
    assert hardware.udev in plugin.watch_paths


def test_some_of_the_nodes_behind_a_device_can_be_left_out(make: Make, hardware: Hardware) -> None:
    hardware.pci("0000:3b:00.0", "15b3:101d", "020700", driver="mlx5_core")
    path = "pci0000:00/0000:3b:00.0"
    hardware.device(
        f"{path}/infiniband_verbs/uverbs0", "infiniband_verbs", node="infiniband/uverbs0"
    )
    for name in ("issm0", "umad0"):
        hardware.device(
            f"{path}/infiniband_mad/{name}", "infiniband_mad", node=f"infiniband/{name}"
        )
    hardware.device("virtual/misc/rdma_cm", "misc", node="infiniband/rdma_cm")
    (device,) = make("""
        name: hca
        groups:
        - select: {subsystem: pci, driver: mlx5_core}
          nodes: [infiniband_verbs, {subsystem: infiniband_mad, not: {name: "issm*"}}]
          with: [/dev/infiniband/rdma_cm]
        """).discover()
    assert device.health
    assert [
        "/dev/infiniband/umad0",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/rdma_cm",
    ] == [node.container_path for node in device.nodes]


def test_groups_that_take_different_nodes_of_a_device_have_different_ids(
    make: Make, hardware: Hardware
) -> None:
    graphics(hardware, "0000:03:00.0", 0)
    one, two = (
        f"{{select: {{subsystem: pci}}, nodes: [{{subsystem: drm, {more}}}]}}"
        for more in ("name: 'card*'", "not: {name: 'card*'}")
    )
    devices = found(make(f"{{name: ab, groups: [{one}, {two}]}}"))
    assert [["card0"], ["renderD0"]] == [names(device) for device in devices.values()]


@pytest.mark.parametrize("name", ["amdgpu_xcp_0", "amdgpu_xcp.0"])
def test_the_nodes_of_a_partition_are_one_device(make: Make, hardware: Hardware, name: str) -> None:
    hardware.device(f"platform/{name}", "platform", driver="amdgpu_xcp", is_bus=True)
    for node in ("card2", "renderD129"):
        hardware.device(f"platform/{name}/drm/{node}", "drm", node=f"dri/{node}")
    entry = (
        "{name: part, groups: [{select: {subsystem: platform, name: 'amdgpu_xcp*'}, nodes: [drm]}]}"
    )
    (device,) = make(entry).discover()
    assert (f"part-{name}", ["card2", "renderD129"]) == (device.id, names(device))


def test_a_sub_function_is_a_device_of_its_own(make: Make, hardware: Hardware) -> None:
    hardware.pci("0000:3b:00.0", "15b3:101d", "020000", driver="mlx5_core", numa=1)
    parent = "pci0000:00/0000:3b:00.0"
    hardware.device(
        f"{parent}/mlx5_core.sf.2", "auxiliary", attributes={"sfnum": "88"}, is_bus=True
    )
    for folder, number in ((parent, 0), (f"{parent}/mlx5_core.sf.2", 1)):
        path = f"{folder}/infiniband_verbs/uverbs{number}"
        hardware.device(path, "infiniband_verbs", node=f"infiniband/uverbs{number}")
    rest = "nodes: [infiniband_verbs]"
    plugin = make(
        f"{{name: rdma, groups: [{{select: {{subsystem: pci, driver: mlx5_core}}, {rest}}}, "
        f"{{select: {{subsystem: auxiliary, name: mlx5_core.sf.*}}, {rest}}}]}}"
    )
    assert {
        "rdma-0000:3b:00.0": ["uverbs0"],
        "rdma-0000:3b:00.0/mlx5_core.sf.2": ["uverbs1"],
    } == {one: names(device) for one, device in found(plugin).items()}
    assert {dp.Topology((1,))} == {device.topology for device in plugin.discover()}


def test_a_node_that_all_devices_need_is_given_once_for_all_of_them(
    kubelet: Kubelet, make: Make, hardware: Hardware
) -> None:
    for number in (3, 4):
        graphics(hardware, f"0000:0{number}:00.0", number, "amdgpu")
    hardware.device("virtual/kfd/kfd", "kfd", node="kfd")
    plugin = make("""
        name: gpu
        groups:
        - select: {subsystem: pci, driver: amdgpu}
          nodes: [drm]
          with: [/dev/kfd]
        """)
    with kubelet.running(plugin) as node:
        ids = {"gpu-0000:03:00.0", "gpu-0000:04:00.0"}
        node.wait_for("squat.ai/gpu", ids, timeout=PATIENCE)
        given = node.allocate(*ids)
    assert 1 == [one.host_path for one in given.nodes].count("/dev/kfd")
    assert 5 == len(given.nodes)


def test_a_device_is_unhealthy_without_the_node_that_all_need(
    make: Make, hardware: Hardware
) -> None:
    graphics(hardware, "0000:03:00.0", 0)
    plugin = make(
        "{name: ab, groups: [{select: {subsystem: pci}, nodes: [drm], with: [/dev/kfd-x]}]}"
    )
    (device,) = plugin.discover()
    assert "with: /dev/kfd-x: not on this node" == device.health.reason
    hardware.device("virtual/kfd/kfd", "kfd", node="kfd-x")
    (device,) = plugin.discover()
    assert device.health


ADVICE = (
    "is a device node, which a container cannot open as a mount: use paths, or with beside select"
)


def test_a_device_node_is_not_a_mount() -> None:
    text = "devices: [{name: ab, groups: [{paths: [{path: /x}]}], mounts: [{path: /dev/null}]}]\n"
    with pytest.raises(dp.ConfigError) as raised:
        refuse_faults(text)
    assert f"devices[0].mounts[0].path: '/dev/null' {ADVICE}" == str(raised.value)


@pytest.mark.parametrize("path", ["/dev/kfd-x", "/dev//{name}-x", "//dev/./kfd-x/"])
def test_a_device_node_that_only_sysfs_knows_is_not_a_mount_either(
    make: Make, hardware: Hardware, path: str
) -> None:
    graphics(hardware, "0000:03:00.0", 0)
    hardware.device("virtual/kfd/kfd", "kfd", node="kfd-x")
    plugin = make(
        "{name: kfd, groups: [{select: {subsystem: pci}, nodes: [drm]}], "
        f"mounts: [{{path: {path!r}}}, {{path: /etc}}, {{path: /dev/not-there}}]}}"
    )
    (device,) = plugin.discover()
    assert device.health.reason.endswith(f" {ADVICE}")
    assert 3 == len(device.mounts)
