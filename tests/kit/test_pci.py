"""Facts of PCI functions, and what goes with them."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.kit import pci
from deviceplugin.kit.hardware import Tree
from deviceplugin_testing.fixture import FailingKernel
from hardware.failing_calls import failing_calls
from hardware.tree import Hardware

Look = Callable[[], Tree]
GPU, SOUND, NIC = "0000:02:00.0", "0000:02:00.1", "10000:3b:00.0"


def only(look: Look, address: str = GPU) -> pci.Function:
    found = pci.at(look(), address)
    assert found is not None
    return found


def facts(one: pci.Function) -> tuple[object, ...]:
    ids = one.vendor, one.product, one.pci_class
    return *ids, one.driver, one.numa_node, one.iommu_group


def test_a_function_says_who_it_is(hardware: Hardware, look: Look) -> None:
    hardware.pci(GPU, "8086:56c0", "038000", driver="xe", numa=1, group="17")
    gpu = only(look)
    assert (GPU, (0x8086, 0x56C0, "038000", "xe", 1, "17")) == (gpu.address, facts(gpu))
    assert "Function('0000:02:00.0')" == repr(gpu)
    assert {gpu} == {gpu, only(look)}
    assert gpu != GPU


@pytest.mark.parametrize(
    ("own", "bridge", "expected"),
    [
        (("8", "16"), ("8", "16"), "8 of 16 lanes"),
        (("16", "16"), ("16", "16"), ""),
        (("8", "16"), ("8", "8"), ""),
        (("4", "8"), ("4", "16"), "4 of 8 lanes"),
        (("0", "16"), ("0", "16"), ""),
        (("8", "16"), ("8", "255"), ""),
        (("8", "16"), None, ""),
        (("", "16"), ("8", "16"), ""),
    ],
)
def test_a_link_is_narrow_if_both_ends_can_do_more(
    hardware: Hardware,
    look: Look,
    own: tuple[str, str],
    bridge: tuple[str, str] | None,
    expected: str,
) -> None:
    path = f"pci0000:00/0000:00:01.0/{GPU}" if bridge else f"pci0000:00/{GPU}"
    for place, widths in ((path, own), (path.rpartition("/")[0], bridge)):
        if widths:
            names = ("current_link_width", "max_link_width")
            values = dict(zip(names, widths, strict=True))
            hardware.device(place, "pci", attributes=values, is_bus=True)
    assert expected == only(look).lost_lanes


def test_what_the_kernel_does_not_say_is_unknown(
    hardware: Hardware, look: Look, kernel: FailingKernel
) -> None:
    folder = hardware.pci(GPU, "8086:56c0", "038000", driver="xe")
    (folder / "class").write_text("display\n")
    (folder / "device").write_text("\n")
    (folder / "iommu_group").symlink_to("iommu_group")
    kernel.faults[folder / "vendor"] = errno.ENODEV
    kernel.faults[folder / "driver"] = errno.EACCES
    gpu = only(look)
    assert (None, None, "", "", None, "") == facts(gpu)
    assert [] == gpu.virtual_functions
    assert (None, False) == (gpu.physical_function, gpu.is_divided)


def test_the_driver_of_the_bridge_above_is_not_its_own(hardware: Hardware, look: Look) -> None:
    hardware.pci("0000:00:01.0", "8086:0001", "060400", driver="pcieport")
    hardware.pci(f"0000:00:01.0/{GPU}", "8086:56c0", "038000")
    assert "" == only(look).driver
    assert "pcieport" == only(look).device.driver


def test_functions_are_in_the_order_of_their_addresses(hardware: Hardware, look: Look) -> None:
    for address in (NIC, SOUND, GPU):
        hardware.pci(address, "8086:56c0", "038000")
    assert [GPU, SOUND, NIC] == [one.address for one in pci.functions(look())]
    assert [GPU, SOUND] == [one.address for one in only(look, SOUND).siblings]
    assert pci.at(look(), "0000:ff:00.0") is None


def test_the_function_that_a_device_is_behind_is_found(hardware: Hardware, look: Look) -> None:
    hardware.pci(GPU, "8086:56c0", "038000")
    hardware.device(f"pci0000:00/{GPU}/drm/card0", "drm", node="dri/card0")
    hardware.device("virtual/tun", "misc", node="net/tun")
    tree = look()
    assert pci.at(tree, GPU) == pci.of(tree.subsystem("drm")[0])
    assert pci.of(tree.subsystem("misc")[0]) is None


def test_virtual_functions_stand_for_the_physical_one(hardware: Hardware, look: Look) -> None:
    physical = hardware.pci(GPU, "8086:56c0", "038000")
    virtual = hardware.pci(SOUND, "8086:56c0", "038000")
    (virtual / "physfn").symlink_to(physical)
    for name, target in (("virtfn10", physical), ("virtfn2", virtual), ("virtfnx", virtual)):
        (physical / name).symlink_to(target)
    for text, expected in (("0\n", False), ("2\n", True), ("many\n", False)):
        (physical / "sriov_numvfs").write_text(text)
        assert expected == only(look).is_divided
    assert [SOUND, GPU] == [one.address for one in only(look).virtual_functions]
    assert [2, 10] == [*only(look).numbered_functions]
    assert (only(look), None) == (only(look, SOUND).physical_function, only(look).physical_function)


def test_nodes_behind_a_function_are_given_if_they_exist(hardware: Hardware, look: Look) -> None:
    hardware.pci(GPU, "8086:56c0", "038000")
    for name in ("renderD1280", "card10", "renderD128", "card2"):
        hardware.device(f"pci0000:00/{GPU}/drm/{name}", "drm", node=f"dri/{name}")
    (hardware.dev / "dri/card10").unlink()
    names = [path.name for path in only(look).nodes("drm")]
    assert ["card2", "renderD128", "renderD1280"] == names
    assert [] == only(look).nodes("accel")


def test_links_by_path_are_those_of_the_address(hardware: Hardware, look: Look) -> None:
    hardware.pci(GPU, "8086:56c0", "038000")
    assert [] == list(only(look).by_path())
    folder = hardware.dev / "dri/by-path"
    folder.mkdir(parents=True)
    for name in (f"pci-{GPU}-render", f"pci-{GPU}-card", f"pci-{GPU}0-card", f"pci-{SOUND}-card"):
        (folder / name).symlink_to(Path("../card0"))
    assert [folder / f"pci-{GPU}-card", folder / f"pci-{GPU}-render"] == list(only(look).by_path())


def test_a_virtual_function_whose_card_cannot_be_read_is_still_one(
    hardware: Hardware, look: Look
) -> None:
    folder = hardware.pci(GPU, "8086:56c0", "038000")
    (folder / "physfn").symlink_to("../none")
    assert only(look).physical_function
    (folder / "physfn").unlink()
    with failing_calls(hardware.sys) as calls:
        (folder / "physfn").symlink_to(".")
        calls.fail(folder / "physfn", errno.EIO)
        with calls.on():
            assert only(look).physical_function
