"""What VFIO needs of a device: its group, nodes, and who else uses the group."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.kit import vfio
from deviceplugin.kit.hardware import Device, Tree
from hardware.tree import Hardware

Look = Callable[[], Tree]
GPU, AUDIO, BRIDGE = "0000:01:00.0", "0000:01:00.1", "0000:00:01.1"
UUIDS = ("83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002")


def device(look: Look, path: str) -> Device:
    tree = look()
    return tree.device(f"{tree.sysfs.root}/devices/{path}")


def unit(look: Look, path: str = f"pci0000:00/{GPU}") -> vfio.Unit:
    found = vfio.of(device(look, path))
    assert found is not None
    return found


def names(found: vfio.Unit) -> list[str]:
    """Return nodes as they are called below ``/dev``."""
    return [str(Path(node).relative_to(found.device.tree.dev)) for node in found.nodes]


@pytest.fixture
def gpu(hardware: Hardware) -> Path:
    """Return a GPU that VFIO has."""
    return hardware.pci(GPU, "10de:2330", "030200", group="1", driver="vfio-pci")


def test_drivers_of_vfio_are_known_by_their_names() -> None:
    yes = ["vfio-pci", "mlx5_vfio_pci", "hisi-acc-vfio-pci", "xe-vfio-pci", "vfio-platform"]
    no = ["", "nvidia", "pci-stub", "uio_pci_generic", "vfio-pci-old"]
    others = ["vfio-amba", "vfio-fsl-mc", "vfio-cdx"]
    assert [*yes, *others] == [one for one in (*yes, *no, *others) if vfio.is_driver(one)]


@pytest.mark.parametrize(
    ("missing", "has_own", "group", "expected"),
    [
        ("", False, "", "vfio/vfio vfio/1"),
        ("", True, "", "vfio/vfio vfio/1"),
        ("virtual/vfio/1", True, "", "iommu vfio/devices/vfio10"),
        ("virtual/misc/vfio", True, "", "iommu vfio/1"),
        ("virtual/vfio/1", False, "noiommu-1", "vfio/vfio vfio/noiommu-1"),
    ],
    ids=["of groups", "of both", "of devices", "of groups, with iommufd", "of unsafe groups"],
)
def test_a_device_has_the_nodes_that_its_kernel_has(
    hardware: Hardware,
    look: Look,
    gpu: Path,
    *,
    missing: str,
    has_own: bool,
    group: str,
    expected: str,
) -> None:
    if has_own:
        hardware.vfio_device(gpu, 10)
    if missing:
        hardware.unplug(missing)
    if group:
        hardware.vfio(group)
    assert (expected.split(), []) == (names(unit(look)), unit(look).problems)


def test_nodes_of_iommufd_are_given_beside_those_of_groups(
    hardware: Hardware, look: Look, gpu: Path
) -> None:
    def also() -> list[str]:
        return [str(Path(node).relative_to(hardware.dev)) for node in unit(look).also]

    assert [] == also()
    hardware.vfio_device(gpu, 10)
    assert ["iommu", "vfio/devices/vfio10"] == also()
    (hardware.dev / "iommu").rename(hardware.dev / "away")
    assert [] == also()
    (hardware.dev / "away").rename(hardware.dev / "iommu")
    hardware.unplug("virtual/misc/vfio")  # iommu is the first node then
    assert (["iommu", "vfio/1"], ["vfio/devices/vfio10"]) == (names(unit(look)), also())
    hardware.unplug("virtual/vfio/1")
    assert (["iommu", "vfio/devices/vfio10"], []) == (names(unit(look)), also())


@pytest.mark.usefixtures("gpu")
def test_a_group_is_a_piece_of_hardware_with_all_its_functions(
    hardware: Hardware, look: Look
) -> None:
    hardware.pci(AUDIO, "10de:22bd", "040300", group="1", driver="vfio-pci")
    hardware.pci("0000:01:00.2", "10de:1ad8", "0c0330", group="1")
    expected = [f"pci/{GPU}", f"pci/{AUDIO}", "pci/0000:01:00.2"]
    assert [f"iommu_group/{GPU}", *expected] == unit(look).pieces
    assert [True, False, False, False] == [*map(vfio.is_group, unit(look).pieces)]
    assert ([AUDIO], [GPU]) == (unit(look).others, unit(look, f"pci0000:00/{AUDIO}").others)
    path = f"pci0000:00/{GPU}/{UUIDS[0]}"
    hardware.device(path, "mdev", is_bus=True)
    assert [f"pci/{GPU}"] == unit(look, path).pieces


def test_all_of_a_group_are_given_where_devices_have_the_nodes(
    hardware: Hardware, look: Look, gpu: Path
) -> None:
    second = hardware.pci(AUDIO, "10de:22bd", "040300", group="1", driver="vfio-pci")
    hardware.unplug("virtual/vfio/1")
    for folder, number in ((gpu, 10), (second, 9)):
        hardware.vfio_device(folder, number)
    assert ["iommu", "vfio/devices/vfio10", "vfio/devices/vfio9"] == names(unit(look))


def test_a_device_whose_node_is_missing_cannot_be_used(
    hardware: Hardware, look: Look, gpu: Path
) -> None:
    for name in ("vfio/1", "vfio/vfio"):
        (hardware.dev / name).rename(hardware.dev / "away")
        assert [f"{hardware.dev}/{name} does not exist"] == unit(look).problems
        (hardware.dev / "away").rename(hardware.dev / name)
    hardware.unplug("virtual/vfio/1")
    sought = f"{hardware.dev}/vfio/1, {hardware.dev}/vfio/devices"
    expected = [f"the kernel has no node of VFIO for {GPU}; looked for {sought}"]
    assert ([], expected) == (unit(look).nodes, unit(look).problems)
    hardware.vfio_device(gpu, 0, has_node=False)
    assert ([], expected) == (unit(look).nodes, unit(look).problems)


def test_a_device_without_a_group_and_without_a_node_cannot_be_used(
    hardware: Hardware, look: Look
) -> None:
    folder = hardware.pci(GPU, "10de:2330", "030200", driver="vfio-pci")
    reason = f"{GPU} has no IOMMU group: enable the IOMMU in firmware and kernel"
    assert [reason] == unit(look).problems
    hardware.vfio_device(folder, 0, has_node=False)
    reason = f"the kernel has no node of VFIO for {GPU}; looked for {hardware.dev}/vfio/devices"
    assert [reason] == unit(look).problems


@pytest.mark.parametrize(
    ("driver", "state"), [("", "has no driver"), ("nvidia", "has the driver nvidia")]
)
def test_a_device_that_vfio_does_not_have_cannot_be_used(
    hardware: Hardware, look: Look, driver: str, state: str
) -> None:
    hardware.pci(GPU, "10de:2330", "030200", group="1", driver=driver)
    assert [f"{GPU} {state}: bind it to one of VFIO, such as vfio-pci"] == unit(look).problems


def test_what_vfio_has_counts_whatever_the_driver_is_called(hardware: Hardware, look: Look) -> None:
    folder = hardware.pci(GPU, "10de:2330", "030200", group="1", driver="nvidia")
    hardware.vfio("1")
    hardware.vfio_device(folder, 0)
    assert (True, []) == (vfio.has(unit(look).device), unit(look).problems)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [("vfio-pci", True), ("pci-stub", True), ("xen-pciback", True), ("nvidia", False), ("", False)],
)
def test_a_device_is_kept_for_virtual_machines_by_its_driver(
    hardware: Hardware, look: Look, driver: str, *, expected: bool
) -> None:
    hardware.pci(GPU, "10de:2330", "030200", driver=driver)
    assert expected == vfio.is_reserved(device(look, f"pci0000:00/{GPU}"))


@pytest.mark.parametrize(
    ("kind", "driver", "is_viable"),
    [
        ("040300", "snd_hda_intel", False),
        ("060100", "lpc_ich", False),  # a bridge, but to no PCI bus
        ("040300", "", True),
        ("040300", "pci-stub", True),
        ("040300", "vfio-pci", True),
        ("060400", "pcieport", True),
        ("060400", "shpchp", True),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_group_is_viable_if_the_kernel_uses_none_of_it(
    hardware: Hardware, look: Look, kind: str, driver: str, is_viable: bool
) -> None:
    hardware.pci(AUDIO, "10de:22bd", kind, group="1", driver=driver)
    reason = f"IOMMU group 1 is not viable: {AUDIO} has the driver {driver}"
    assert ([] if is_viable else [reason]) == unit(look).problems


def test_newer_kernels_ask_for_the_drivers_of_bridges_too(
    hardware: Hardware, look: Look, gpu: Path
) -> None:
    hardware.pci(BRIDGE, "8086:1901", "060400", group="1", driver="shpchp")
    hardware.vfio_device(gpu, 0)
    assert [f"IOMMU group 1 is not viable: {BRIDGE} has the driver shpchp"] == unit(look).problems


@pytest.mark.usefixtures("gpu")
def test_members_are_the_devices_of_the_group_without_bridges(
    hardware: Hardware, look: Look
) -> None:
    hardware.pci(BRIDGE, "8086:1901", "060400", group="1", driver="pcieport")
    hardware.pci(AUDIO, "10de:22bd", "040300", group="1", driver="vfio-pci")
    assert [GPU, AUDIO] == [one.name for one in unit(look, f"pci0000:00/{AUDIO}").members]
    hardware.pci("0000:00:1c.0", "8086:1901", "060400", group="2", driver="pcieport")
    alone = unit(look, "pci0000:00/0000:00:1c.0")
    assert ["0000:00:1c.0"] == [one.name for one in alone.members]


def test_mediated_devices_have_groups_of_their_own(hardware: Hardware, look: Look) -> None:
    hardware.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="i915")
    parent = "pci0000:00/0000:00:02.0"
    for uuid, group in zip(UUIDS, ("9", "10"), strict=True):
        folder = hardware.device(f"{parent}/{uuid}", "mdev", driver="vfio_mdev", is_bus=True)
        hardware.join(folder, group)
        hardware.vfio(group)
    found = [unit(look, f"{parent}/{uuid}") for uuid in UUIDS]
    assert [["vfio/vfio", "vfio/9"], ["vfio/vfio", "vfio/10"]] == [*map(names, found)]
    assert [[], []] == [one.problems for one in found]


def test_a_mediated_device_without_a_driver_does_not_stand_for_its_parent(
    hardware: Hardware, look: Look
) -> None:
    hardware.pci("0000:00:02.0", "8086:3e98", "030000", group="2", driver="vfio-pci")
    path = f"pci0000:00/0000:00:02.0/{UUIDS[0]}"
    hardware.device(path, "mdev", is_bus=True)
    assert (UUIDS[0], "") == (unit(look, path).device.name, unit(look, path).group)
    reason = f"{UUIDS[0]} has no driver: bind it to one of VFIO, such as vfio-pci"
    assert reason == unit(look, path).problems[0]


def test_a_mediated_device_of_a_kernel_without_groups_has_its_own_node(
    hardware: Hardware, look: Look
) -> None:
    path = f"vfio_ap/matrix/{UUIDS[0]}"
    folder = hardware.device(path, "mdev", driver="vfio_ap_mdev", is_bus=True)
    hardware.vfio_device(folder, 3)
    found = unit(look, path)
    assert (["iommu", "vfio/devices/vfio3"], []) == (names(found), found.problems)


def test_devices_of_other_buses_are_the_same(hardware: Hardware, look: Look) -> None:
    folder = hardware.device("platform/soc/one", "cdx", driver="vfio-cdx", is_bus=True)
    hardware.join(folder, "4")
    hardware.vfio("4")
    found = unit(look, "platform/soc/one")
    assert (["vfio/vfio", "vfio/4"], []) == (names(found), found.problems)


@pytest.mark.usefixtures("gpu")
def test_what_is_behind_a_device_is_given_with_it_and_the_rest_with_nothing(
    hardware: Hardware, look: Look
) -> None:
    hardware.device(f"pci0000:00/{GPU}/drm/card0", "drm", node="dri/card0")
    assert GPU == unit(look, f"pci0000:00/{GPU}/drm/card0").device.name
    hardware.device("virtual/misc/tun", "misc", node="net/tun")
    assert vfio.of(device(look, "virtual/misc/tun")) is None
