"""What selectors leave out, what is behind a device, and the nodes that all devices need."""

import fcntl
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

import deviceplugin as dp
import deviceplugin_generic
from deviceplugin.kit.configuration import of_text
from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_generic.configuration import loading
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import SimulatedKubelet
from discovered import found, reasons
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


@pytest.mark.parametrize(("group", "expected"), [*((one, "") for one in GOOD), *BAD.items()])
def test_what_is_wrong_is_told_with_its_key_and_the_schema_agrees(
    group: str, expected: str
) -> None:
    text = ENTRY % group
    with pytest.raises(dp.ConfigError) if expected else nullcontext() as raised:
        refuse_faults(text)
    assert expected == (str(raised.value) if raised else "")
    assert (not expected) == Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(text))


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
    make: Make, hardware: Hardware
) -> None:
    for number in (3, 4):
        graphics(hardware, f"0000:0{number}:00.0", number, "amdgpu")
    hardware.device("virtual/kfd/kfd", "kfd", node="kfd")
    select = "select: {subsystem: pci, driver: amdgpu}"
    plugin = make(f"{{name: gpu, groups: [{{{select}, nodes: [drm], with: [/dev/kfd]}}]}}")
    given = plugin.allocate(list(plugin.discover()))
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


GPU, AUDIO = "0000:01:00.0", "0000:01:00.1"
VFIO_ENTRY = "{name: vm, groups: [{select: {subsystem: pci, vendor: '10de'}, nodes: [%s]}]}"
GROUPS, CHARACTERS = VFIO_ENTRY % "vfio", VFIO_ENTRY % "vfio-dev"
UUIDS = ("83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002")
NOT_VIABLE = f"IOMMU group 1 is not viable: {AUDIO} has the driver snd_hda_intel"
UNBOUND = "has no driver: bind it to one of VFIO, such as vfio-pci"


def nodes(plugin: dp.Plugin) -> dict[str, list[str]]:
    """Return the paths in a container of the nodes of each device, by id."""
    return {
        one: [node.container_path for node in device.nodes] for one, device in found(plugin).items()
    }


@pytest.fixture
def gpu(hardware: Hardware) -> Path:
    """Return a GPU that VFIO has, beside its audio function."""
    return hardware.pci(GPU, "10de:1eb8", "030200", group="1", driver="vfio-pci")


@pytest.mark.parametrize("driver", ["snd_hda_intel", ""])
@pytest.mark.parametrize("entry", [GROUPS, CHARACTERS])
def test_a_group_that_the_host_uses_too_is_unhealthy(
    make: Make, hardware: Hardware, gpu: Path, driver: str, entry: str
) -> None:
    hardware.vfio_device(gpu, 0)
    hardware.pci(AUDIO, "8086:22bd", "040300", group="1", driver=driver)
    expected = NOT_VIABLE if driver else ""
    assert [expected] == list(reasons(make(entry)).values())


@pytest.mark.usefixtures("gpu")
def test_a_group_becomes_healthy_when_the_host_gives_the_rest_of_it_up(
    make: Make, hardware: Hardware
) -> None:
    audio = hardware.pci(AUDIO, "8086:22bd", "040300", group="1", driver="snd_hda_intel")
    plugin = make(GROUPS)
    assert {f"vm-{GPU}": NOT_VIABLE} == reasons(plugin)
    (audio / "driver").unlink()
    hardware.event()
    assert {f"vm-{GPU}": ""} == reasons(plugin)


def test_each_mediated_device_is_a_device_with_its_own_group(
    make: Make, hardware: Hardware
) -> None:
    hardware.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="i915")
    for uuid, group in zip(UUIDS, ("9", "10"), strict=True):
        path = f"pci0000:00/0000:00:02.0/{uuid}"
        hardware.join(hardware.device(path, "mdev", driver="vfio_mdev", is_bus=True), group)
        hardware.vfio(group)
    plugin = make(
        "{name: mdev, groups: [{select: {subsystem: mdev}, nodes: [vfio]}], env: {G: '{group}'}}"
    )
    ids = [f"mdev-0000:00:02.0/{uuid}" for uuid in UUIDS]
    expected = {
        one: ["/dev/vfio/vfio", f"/dev/vfio/{n}"] for one, n in zip(ids, (9, 10), strict=True)
    }
    assert expected == nodes(plugin)
    assert dict.fromkeys(ids, "") == reasons(plugin)
    assert ["9", "10"] == [device.envs["G"] for device in found(plugin).values()]
    hardware.device("virtual/tun", "misc", node="net/tun")  # which VFIO does not have
    assert {} == nodes(make("{name: vm, groups: [{select: {subsystem: misc}, nodes: [vfio]}]}"))


@pytest.mark.parametrize("unbound", [GPU, AUDIO])
def test_a_group_is_healthy_if_vfio_has_any_of_what_is_selected(
    make: Make, hardware: Hardware, unbound: str
) -> None:
    for address in (GPU, AUDIO):
        driver = "" if address == unbound else "vfio-pci"
        hardware.pci(address, "10de:22bd", "030200", group="1", driver=driver)
    assert {f"vm-{GPU}": ""} == reasons(make(GROUPS))


def test_devices_that_are_one_are_unhealthy_if_any_of_them_is(
    make: Make, hardware: Hardware
) -> None:
    hardware.pci(GPU, "10de:1eb8", "030200", group="1", driver="vfio-pci")
    hardware.pci("0000:02:00.0", "10de:1eb8", "030200", group="2")
    one = GROUPS.replace("nodes:", "perMatch: false, nodes:")
    (reason,) = reasons(make(one)).values()
    assert f"0000:02:00.0 {UNBOUND}" == reason


PLUGIN = Path(sys.executable).with_name("generic-device-plugin")
LOOP_ADD, LOOP_REMOVE = 0x4C80, 0x4C81


def change_loop(request: int, number: int) -> None:
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no loop devices can be made here: {error}")
    try:
        fcntl.ioctl(control, request, number)
    except OSError as error:
        pytest.skip(f"no loop device can be made here: {error}")
    finally:
        os.close(control)


def test_a_device_that_the_kernel_makes_and_removes_is_known_by_its_events(
    kubelet: Kubelet,
) -> None:
    number = 1000 + os.getpid() % 1000
    name = f"loop{number}"
    entry = f"{{name: loop, groups: [{{select: {{subsystem: block, name: '{name}'}}}}]}}"
    other = "{name: mem, groups: [{select: {subsystem: mem, name: 'null'}}]}"
    plugin = GenericPlugin(GenericSettings(device=Devices.parse([entry, other])))
    hour = dp.Settings().vanished_retention
    with kubelet.running(plugin, discovery_interval=hour, poll_interval=hour) as node:
        node.wait_for("devic.es/mem", {"mem-null"})
        change_loop(LOOP_ADD, number)
        try:
            node.wait_for("devic.es/loop", {f"loop-{name}"})
            (given,) = node.allocate(f"loop-{name}", resource="devic.es/loop").nodes
            assert f"/dev/{name}" == given.host_path
        finally:
            change_loop(LOOP_REMOVE, number)
        node.wait_for("devic.es/loop", (), {f"loop-{name}"})


def logged(process: "subprocess.Popen[str]", kubelet: SimulatedKubelet, dev: Path) -> list[str]:
    """Return the warnings of a plugin up to its exit, after it noticed a new node by inotify."""
    kubelet.wait(
        lambda: len(kubelet.devices("devic.es/port")) == 1, timeout=PATIENCE, what="a device"
    )
    (dev / "port2").symlink_to("/dev/null")
    kubelet.wait(
        lambda: len(kubelet.devices("devic.es/port")) == 2, timeout=PATIENCE, what="another"
    )
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode
    lines = [json.loads(line) for line in err.splitlines()]
    return [
        line["error"] for line in lines if line["event"].startswith("kernel events unavailable")
    ]


def test_a_plugin_without_kernel_events_says_so_once_and_goes_on(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "port1").symlink_to("/dev/null")
    # As in an image that has no libudev.
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes.util\nctypes.util.find_library = lambda name: None\n"
    )
    settings = kubelet.settings()
    command = [
        *(str(PLUGIN), f"--plugin-dir={settings.plugin_dir}", "--http-address=off"),
        *("--log-format=json", "--discovery-interval=1h", "--poll-interval=1h"),
        f"--pod-resources-socket={settings.pod_resources_socket}",
        f"--device={{name: port, groups: [{{paths: [{{path: {dev}/port*}}]}}]}}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert ["No library named udev"] == logged(process, kubelet.simulated, dev)
