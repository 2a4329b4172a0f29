"""What selectors leave out, what is behind a device, and the nodes that all devices need."""

import fcntl
import os
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_testing.fixture import Kubelet
from discovered import found, reasons
from generic.plugin import Machine


def names(device: dp.Device) -> list[str]:
    return [*dict.fromkeys(Path(node.host_path).name for node in device.nodes)]


def graphics(machine: Machine, address: str, number: int, driver: str = "xe") -> str:
    """Make a graphics card with its two nodes."""
    machine.pci(address, "8086:56c0", "038000", driver=driver)
    path = f"pci0000:00/{address}"
    machine.device(f"{path}/drm/card{number}", "drm", node=f"dri/card{number}")
    machine.device(f"{path}/drm/renderD{number}", "drm", node=f"dri/renderD{number}")
    return path


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
    machine: Machine, criteria: str, expected: list[str]
) -> None:
    for number, driver, functions in ((3, "xe", "4"), (4, "i915", "0"), (5, "xe", "")):
        path = graphics(machine, f"0000:0{number}:00.0", number, driver)
        if functions:
            (machine.sys / "devices" / path / "sriov_numvfs").write_text(f"{functions}\n")
    entry = f"{{name: ab, groups: [{{select: {{subsystem: pci, {criteria}}}, nodes: [drm]}}]}}"
    assert expected == [
        str(device.attributes["port"])[5:7] for device in machine.plugin(entry).discover()
    ]


def test_some_of_the_nodes_behind_a_device_can_be_left_out(machine: Machine) -> None:
    machine.pci("0000:3b:00.0", "15b3:101d", "020700", driver="mlx5_core")
    path = "pci0000:00/0000:3b:00.0"
    machine.device(
        f"{path}/infiniband_verbs/uverbs0", "infiniband_verbs", node="infiniband/uverbs0"
    )
    for name in ("issm0", "umad0"):
        machine.device(f"{path}/infiniband_mad/{name}", "infiniband_mad", node=f"infiniband/{name}")
    machine.device("virtual/misc/rdma_cm", "misc", node="infiniband/rdma_cm")
    (device,) = machine.plugin("""
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


def test_groups_that_take_different_nodes_of_a_device_have_different_ids(machine: Machine) -> None:
    graphics(machine, "0000:03:00.0", 0)
    one, two = (
        f"{{select: {{subsystem: pci}}, nodes: [{{subsystem: drm, {more}}}]}}"
        for more in ("name: 'card*'", "not: {name: 'card*'}")
    )
    devices = found(machine.plugin(f"{{name: ab, groups: [{one}, {two}]}}"))
    assert [["card0"], ["renderD0"]] == [names(device) for device in devices.values()]


def test_the_nodes_of_a_partition_are_one_device(machine: Machine) -> None:
    names_of_kernels = ("amdgpu_xcp_0", "amdgpu_xcp.1")
    for number, name in enumerate(names_of_kernels):
        machine.device(f"platform/{name}", "platform", driver="amdgpu_xcp", is_bus=True)
        for node in (f"card{number}", f"renderD{number}"):
            machine.device(f"platform/{name}/drm/{node}", "drm", node=f"dri/{node}")
    plugin = machine.plugin(
        "{name: part, groups: [{select: {subsystem: platform, name: 'amdgpu_xcp*'}, nodes: [drm]}]}"
    )
    assert {
        f"part-{name}": [f"card{number}", f"renderD{number}"]
        for number, name in enumerate(names_of_kernels)
    } == {one: names(device) for one, device in found(plugin).items()}


def test_a_sub_function_is_a_device_of_its_own(machine: Machine) -> None:
    machine.pci("0000:3b:00.0", "15b3:101d", "020000", driver="mlx5_core", numa=1)
    parent = "pci0000:00/0000:3b:00.0"
    machine.device(f"{parent}/mlx5_core.sf.2", "auxiliary", attributes={"sfnum": "88"}, is_bus=True)
    for folder, number in ((parent, 0), (f"{parent}/mlx5_core.sf.2", 1)):
        path = f"{folder}/infiniband_verbs/uverbs{number}"
        machine.device(path, "infiniband_verbs", node=f"infiniband/uverbs{number}")
    rest = "nodes: [infiniband_verbs]"
    plugin = machine.plugin(
        f"{{name: rdma, groups: [{{select: {{subsystem: pci, driver: mlx5_core}}, {rest}}}, "
        f"{{select: {{subsystem: auxiliary, name: mlx5_core.sf.*}}, {rest}}}]}}"
    )
    assert {
        "rdma-0000:3b:00.0": ["uverbs0"],
        "rdma-0000:3b:00.0/sf88": ["uverbs1"],
    } == {one: names(device) for one, device in found(plugin).items()}
    assert {dp.Topology((1,))} == {device.topology for device in plugin.discover()}


def test_a_node_that_all_devices_need_is_given_once_for_all_of_them(machine: Machine) -> None:
    for number in (3, 4):
        graphics(machine, f"0000:0{number}:00.0", number, "amdgpu")
    machine.device("virtual/kfd/kfd", "kfd", node="kfd")
    select = "select: {subsystem: pci, driver: amdgpu}"
    plugin = machine.plugin(
        f"{{name: gpu, groups: [{{{select}, nodes: [drm], with: [/dev/kfd]}}]}}"
    )
    given = plugin.allocate(list(plugin.discover()))
    assert 1 == [one.host_path for one in given.nodes].count("/dev/kfd")
    assert 5 == len({one.host_path for one in given.nodes})


def test_a_device_is_unhealthy_without_the_node_that_all_need(machine: Machine) -> None:
    graphics(machine, "0000:03:00.0", 0)
    plugin = machine.plugin(
        "{name: ab, groups: [{select: {subsystem: pci}, nodes: [drm], with: [/dev/kfd-x]}]}"
    )
    (device,) = plugin.discover()
    assert "with: /dev/kfd-x: not on this node" == device.health.reason
    machine.device("virtual/kfd/kfd", "kfd", node="kfd-x")
    (device,) = plugin.discover()
    assert device.health


ADVICE = (
    "is a device node, which a container cannot open as a mount: use paths, or with beside select"
)


@pytest.mark.parametrize("path", ["/dev/kfd-x", "/dev//{name}-x", "//dev/./kfd-x/"])
def test_a_device_node_that_only_sysfs_knows_is_not_a_mount_either(
    machine: Machine, path: str
) -> None:
    graphics(machine, "0000:03:00.0", 0)
    machine.device("virtual/kfd/kfd", "kfd", node="kfd-x")
    plugin = machine.plugin(
        "{name: kfd, groups: [{select: {subsystem: pci}, nodes: [drm]}], "
        f"mounts: [{{path: {path!r}}}, {{path: /etc}}, {{path: /dev/not-there}}]}}"
    )
    (device,) = plugin.discover()
    assert device.health.reason.endswith(f" {ADVICE}")
    assert 3 == len(device.mounts)


GPU, AUDIO = "0000:01:00.0", "0000:01:00.1"
VFIO = "{name: vm, groups: [{select: {subsystem: pci, vendor: '10de'}, nodes: [%s]}]}"
UUIDS = ("83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002")
UNBOUND = "has no driver: bind it to one of VFIO, such as vfio-pci"


@pytest.mark.parametrize("kind", ["vfio", "vfio-dev"])
def test_a_group_is_unhealthy_while_the_host_uses_it_too(machine: Machine, kind: str) -> None:
    gpu = machine.pci(GPU, "10de:1eb8", "030200", group="1", driver="vfio-pci")
    machine.vfio_device(gpu, 0)
    audio = machine.pci(AUDIO, "8086:22bd", "040300", group="1", driver="snd_hda_intel")
    plugin = machine.plugin(VFIO % kind)
    told = f"IOMMU group 1 is not viable: {AUDIO} has the driver snd_hda_intel"
    assert [told] == list(reasons(plugin).values())
    (audio / "driver").unlink()
    machine.event()
    assert [""] == list(reasons(plugin).values())


def test_each_mediated_device_is_a_device_with_its_own_group(machine: Machine) -> None:
    machine.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="i915")
    for uuid, group in zip(UUIDS, ("9", "10"), strict=True):
        path = f"pci0000:00/0000:00:02.0/{uuid}"
        machine.join(machine.device(path, "mdev", driver="vfio_mdev", is_bus=True), group)
        machine.vfio(group)
    plugin = machine.plugin(
        "{name: mdev, groups: [{select: {subsystem: mdev}, nodes: [vfio]}], env: {G: '{group}'}}"
    )
    assert {
        f"mdev-0000:00:02.0/{uuid}": ("", ["/dev/vfio/vfio", f"/dev/vfio/{group}"], {"G": group})
        for uuid, group in zip(UUIDS, ("9", "10"), strict=True)
    } == {
        one.id: (one.health.reason, [node.container_path for node in one.nodes], one.envs)
        for one in plugin.discover()
    }
    machine.device("virtual/tun", "misc", node="net/tun")  # which VFIO does not have
    none = machine.plugin("{name: vm, groups: [{select: {subsystem: misc}, nodes: [vfio]}]}")
    assert [] == list(none.discover())


@pytest.mark.parametrize("unbound", [GPU, AUDIO])
def test_a_group_is_healthy_if_vfio_has_any_of_what_is_selected(
    machine: Machine, unbound: str
) -> None:
    for address in (GPU, AUDIO):
        driver = "" if address == unbound else "vfio-pci"
        machine.pci(address, "10de:22bd", "030200", group="1", driver=driver)
    assert {f"vm-{GPU}": ""} == reasons(machine.plugin(VFIO % "vfio"))


def test_devices_that_are_one_are_unhealthy_if_any_of_them_is(machine: Machine) -> None:
    machine.pci(GPU, "10de:1eb8", "030200", group="1", driver="vfio-pci")
    machine.pci("0000:02:00.0", "10de:1eb8", "030200", group="2")
    one = (VFIO % "vfio").replace("nodes:", "perMatch: false, nodes:")
    (reason,) = reasons(machine.plugin(one)).values()
    assert f"0000:02:00.0 {UNBOUND}" == reason


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
