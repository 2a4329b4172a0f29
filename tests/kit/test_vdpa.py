"""vDPA devices: by which node a program drives one."""

from pathlib import Path

import pytest

from deviceplugin.kit import vdpa
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.sysfs import Sysfs
from hardware.tree import Hardware

CARD = "pci0000:00/0000:03:00.2"


def make(hardware: Hardware, driver: str, *nodes: str) -> Device:
    """Return a vDPA device with directories, of which those in capitals have no device number."""
    folder = hardware.device(f"{CARD}/vdpa0", "vdpa", driver=driver, is_bus=True)
    for name in nodes:
        (folder / name.lower()).mkdir()
        (folder / name.lower() / "dev").write_text("" if name.isupper() else "511:0\n")
    (found,) = Tree(Sysfs(hardware.sys), dev=hardware.dev).subsystem("vdpa")
    return found


@pytest.mark.parametrize(
    ("driver", "kind", "names", "expected"),
    [
        ("vhost_vdpa", "vhost", ["power", "vhost-vdpa-0"], "vhost-vdpa-0"),
        ("vhost_vdpa", "vhost", ["vhost-vdpa-10", "vhost-vdpa-9"], "vhost-vdpa-9"),
        ("vhost_vdpa", "vhost", ["vhost-vdpa-x", "vhost-vdpa-2"], "vhost-vdpa-2"),
        ("vhost_vdpa", "vhost", ["power", "VHOST-VDPA-0"], ""),
        ("virtio_vdpa", "virtio", ["virtio3", "vhost-vdpa-0"], ""),
        ("vp_other", "", ["vhost-vdpa-0"], ""),
        ("", "", [], ""),
    ],
)
def test_the_node_is_the_one_that_vhost_vdpa_has_made(
    tmp_path: Path, driver: str, kind: str, names: list[str], expected: str
) -> None:
    device = make(hardware := Hardware(tmp_path), driver, *names)
    path = expected and f"{hardware.dev}/{expected}"
    assert (kind, path) == (vdpa.kind(device), vdpa.node(device))


def test_a_node_that_is_not_mounted_here_is_known(tmp_path: Path) -> None:
    device = make(hardware := Hardware(tmp_path), "vhost_vdpa")
    hardware.vhost_vdpa(Path(device.path))
    assert device.tree.is_node("/dev/vhost-vdpa-0")
