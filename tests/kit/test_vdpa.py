"""vDPA devices: by which node a program drives one."""

from pathlib import Path

import pytest

from deviceplugin.kit import vdpa
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.sysfs import Sysfs
from hardware.tree import Hardware

CARD = "pci0000:00/0000:03:00.2"


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    return Hardware(tmp_path)


def make(hardware: Hardware, driver: str, *nodes: str, number: str = "511:0\n") -> Device:
    """Return a vDPA device; what vhost_vdpa makes has an empty uevent, as in the kernel."""
    folder = hardware.device(f"{CARD}/vdpa0", "vdpa", driver=driver, is_bus=True)
    for name in nodes:
        (folder / name).mkdir()
        (folder / name / "uevent").write_text("")
        (folder / name / "dev").write_text(number)
    (found,) = Tree(Sysfs(hardware.sys), dev=hardware.dev).subsystem("vdpa")
    return found


@pytest.mark.parametrize(
    ("driver", "kind", "names", "expected"),
    [
        ("vhost_vdpa", "vhost", ["power", "vhost-vdpa-0"], "vhost-vdpa-0"),
        ("vhost_vdpa", "vhost", ["vhost-vdpa-10", "vhost-vdpa-9"], "vhost-vdpa-9"),
        ("vhost_vdpa", "vhost", ["vhost-vdpa-x", "vhost-vdpa-2"], "vhost-vdpa-2"),
        ("vhost_vdpa", "vhost", ["power"], ""),
        ("virtio_vdpa", "virtio", ["virtio3", "vhost-vdpa-0"], ""),
        ("vp_other", "", ["vhost-vdpa-0"], ""),
        ("", "", [], ""),
    ],
)
def test_the_node_is_the_one_that_vhost_vdpa_has_made(
    hardware: Hardware, driver: str, kind: str, names: list[str], expected: str
) -> None:
    device = make(hardware, driver, *names)
    path = expected and f"{hardware.dev}/{expected}"
    assert (kind, path) == (vdpa.kind(device), vdpa.node(device))


def test_a_directory_without_a_device_number_has_no_node(hardware: Hardware) -> None:
    assert "" == vdpa.node(make(hardware, "vhost_vdpa", "vhost-vdpa-0", number=""))


def test_a_node_that_is_not_mounted_here_is_known(hardware: Hardware) -> None:
    device = make(hardware, "vhost_vdpa")
    hardware.vhost_vdpa(Path(device.path))
    assert device.tree.is_node("/dev/vhost-vdpa-0")


@pytest.mark.parametrize(
    ("number", "expected"), [("88", "sf88"), ("", "mlx5_core.sf.4"), ("../8", "mlx5_core.sf.4")]
)
def test_a_sub_function_has_a_name_that_outlasts_a_reboot(
    hardware: Hardware, number: str, expected: str
) -> None:
    values = {"sfnum": number}
    hardware.device(f"{CARD}/mlx5_core.sf.4", "auxiliary", attributes=values, is_bus=True)
    (found,) = Tree(Sysfs(hardware.sys)).subsystem("auxiliary")
    assert expected == found.lasting_name
