"""Devices for virtual machines: which nodes they have, and when VFIO would refuse them."""

from pathlib import Path

import pytest

import deviceplugin as dp
from discovered import found, reasons
from generic.plugin import Make
from hardware.tree import Hardware

GPU, AUDIO = "0000:01:00.0", "0000:01:00.1"
ENTRY = "{name: vm, groups: [{select: {subsystem: pci, vendor: '10de'}, nodes: [%s]}]}"
GROUPS, CHARACTERS = ENTRY % "vfio", ENTRY % "vfio-dev"
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


def test_a_kernel_without_nodes_of_groups_gives_those_of_the_devices(
    make: Make, hardware: Hardware, gpu: Path
) -> None:
    hardware.unplug("virtual/vfio/1")
    looked = f"looked for {hardware.dev}/vfio/1, {hardware.dev}/vfio/devices"
    plugin = make(GROUPS)
    reason = f"the kernel has no node of VFIO for {GPU}; {looked}"
    assert ({f"vm-{GPU}": []}, {f"vm-{GPU}": reason}) == (nodes(plugin), reasons(plugin))
    hardware.vfio_device(gpu, 4)
    assert {f"vm-{GPU}": ["/dev/iommu", "/dev/vfio/devices/vfio4"]} == nodes(plugin)
    assert {f"vm-{GPU}": ""} == reasons(plugin)


def test_a_device_without_a_group_is_unhealthy_unless_vfio_is_unsafe(
    make: Make, hardware: Hardware
) -> None:
    folder = hardware.pci(GPU, "10de:1eb8", "030200", driver="vfio-pci")
    plugin = make(GROUPS)
    reason = f"{GPU} has no IOMMU group: enable the IOMMU in firmware and kernel"
    assert {f"vm-{GPU}": reason} == reasons(plugin)
    hardware.join(folder, "0")
    hardware.vfio("noiommu-0")
    assert {f"vm-{GPU}": ["/dev/vfio/vfio", "/dev/vfio/noiommu-0"]} == nodes(plugin)
    assert {f"vm-{GPU}": ""} == reasons(plugin)


def test_a_device_that_vfio_does_not_have_is_unhealthy(make: Make, hardware: Hardware) -> None:
    hardware.pci(GPU, "10de:1eb8", "030200", group="1", driver="nvidia")
    reason = f"{GPU} has the driver nvidia: bind it to one of VFIO, such as vfio-pci"
    assert {f"vm-{GPU}": reason} == reasons(make(GROUPS))


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


def test_devices_of_other_buses_have_their_groups(make: Make, hardware: Hardware) -> None:
    path = "platform/fd5d0000.gpu"
    folder = hardware.device(path, "platform", driver="vfio-platform", is_bus=True)
    hardware.join(folder, "3")
    hardware.vfio("3")
    plugin = make("{name: vm, groups: [{select: {subsystem: platform}, nodes: [vfio]}]}")
    assert {"vm-fd5d0000.gpu": ["/dev/vfio/vfio", "/dev/vfio/3"]} == nodes(plugin)


def test_what_is_behind_no_device_of_vfio_is_not_found(make: Make, hardware: Hardware) -> None:
    hardware.device("virtual/tun", "misc", node="net/tun")
    assert {} == nodes(make("{name: vm, groups: [{select: {subsystem: misc}, nodes: [vfio]}]}"))
