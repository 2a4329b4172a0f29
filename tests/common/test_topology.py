import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from deviceplugin.topology import numa_node, sysfs_numa_node

NULL = "/dev/null"  # character device 1:3


def device(sysfs: Path, *, numa: str | None = None, parent_numa: str | None = None) -> Path:
    """A device below a PCI function, as in a real sysfs."""
    function = sysfs / "devices/pci0000:00/0000:00:1f.0"
    path = function / "drm/card0"
    path.mkdir(parents=True)
    for directory, text in ((path, numa), (function, parent_numa)):
        if text is not None:
            (directory / "numa_node").write_text(text)
    return path


def link(sysfs: Path, kind: str, number: str, target: Path) -> None:
    directory = sysfs / "dev" / kind
    directory.mkdir(parents=True)
    (directory / number).symlink_to(target)


def test_the_node_of_a_character_device_is_found_by_its_number(tmp_path: Path) -> None:
    link(tmp_path, "char", "1:3", device(tmp_path, numa="1\n"))
    assert 1 == numa_node(NULL, sysfs=tmp_path)


def test_the_node_of_a_block_device_is_found_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link(tmp_path, "block", "259:1", device(tmp_path, numa="0\n"))
    disk, real = Path("/dev/disk-that-not-every-machine-has"), Path.stat
    status = SimpleNamespace(st_mode=stat.S_IFBLK, st_rdev=os.makedev(259, 1))
    monkeypatch.setattr(Path, "stat", lambda path: status if path == disk else real(path))
    assert 0 == numa_node(disk, sysfs=tmp_path)


def test_links_to_a_device_node_are_followed(tmp_path: Path) -> None:
    link(tmp_path, "char", "1:3", device(tmp_path, numa="1\n"))
    (tmp_path / "by-id").symlink_to(NULL)
    assert 1 == numa_node(tmp_path / "by-id", sysfs=tmp_path)


def test_a_device_without_a_node_has_that_of_its_parent(tmp_path: Path) -> None:
    assert 3 == sysfs_numa_node(device(tmp_path, parent_numa="3\n"), sysfs=tmp_path)


def test_the_nearest_node_counts(tmp_path: Path) -> None:
    path = device(tmp_path, numa="0\n", parent_numa="3\n")
    assert 0 == sysfs_numa_node(path, sysfs=tmp_path)


@pytest.mark.parametrize("text", ["-1\n", "", "many\n", "é\n"])
def test_what_is_no_node_is_none(tmp_path: Path, text: str) -> None:
    assert sysfs_numa_node(device(tmp_path, parent_numa=text), sysfs=tmp_path) is None


def test_a_device_of_which_nothing_is_known_has_no_node(tmp_path: Path) -> None:
    assert sysfs_numa_node(device(tmp_path), sysfs=tmp_path) is None
    assert sysfs_numa_node(tmp_path / "none", sysfs=tmp_path) is None
    assert numa_node(NULL, sysfs=tmp_path) is None


def test_nothing_outside_sysfs_is_read(tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    sysfs.mkdir()
    outside = device(tmp_path / "elsewhere", numa="1\n")
    assert sysfs_numa_node(outside, sysfs=sysfs) is None
    (sysfs / "numa_node").write_text("1\n")
    assert sysfs_numa_node(sysfs, sysfs=sysfs) is None


def test_a_loop_of_links_has_no_node(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert sysfs_numa_node(tmp_path / "loop", sysfs=tmp_path) is None


def test_a_path_that_is_no_device_node_has_no_node(tmp_path: Path) -> None:
    assert numa_node(tmp_path, sysfs=tmp_path) is None
    assert numa_node(tmp_path / "none", sysfs=tmp_path) is None
