"""Reading what is mounted where."""

import gc
import os
import select
from pathlib import Path

import pytest

from deviceplugin._platform.callbacks import Listeners
from deviceplugin._platform.mounts import fixed, in_memory, mount_of, mounts
from deviceplugin._platform.pollable_event import PollableEvent

LINES = """\
22 1 8:1 / / rw - ext4 /dev/sda1 ro
23 22 8:1 /a /data rw - ext4 /dev/sda1 rw
24 22 8:1 /b /data rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw
25 22 8:1 /c /elsewhere rw - ext4 /dev/sda1 rw
26 22 8:2 /with\\040blank//deleted /x\\040y rw - xfs /dev/sdb1 rw
too short
odd 22 8:1 /c /elsewhere rw - ext4 /dev/sda1 rw
"""


def test_the_mount_on_top_is_the_one_that_counts() -> None:
    mount = mount_of(Path("/data/file"), mounts(LINES))
    assert mount
    assert (24, 22, "/b", True) == (mount.number, mount.parent, mount.root, mount.is_follower)
    top = mount_of(Path("/database"), mounts(LINES))
    assert top
    assert (Path("/"), ["ro", "rw"]) == (top.point, sorted(top.options))
    assert mount_of(Path("/data"), mounts("")) is None


def test_lines_of_another_format_are_skipped_and_a_deleted_directory_is_known() -> None:
    *others, deleted = mounts(LINES)
    assert [22, 23, 24, 25] == [one.number for one in others if not one.is_deleted]
    assert (26, "/with blank//deleted", Path("/x y"), "xfs", True) == (
        deleted.number,
        deleted.root,
        deleted.point,
        deleted.kind,
        deleted.is_deleted,
    )


def test_file_systems_in_memory_are_known_by_their_numbers(tmp_path: Path) -> None:
    kinds = {"0:6": "devtmpfs", "0:7": "nfs", "8:1": "ext4", "0:30": "tmpfs", "odd": "ramfs"}
    lines = [f"1 1 {number} / / rw - {kind} x rw\n" for number, kind in kinds.items()]
    (tmp_path / "mountinfo").write_text("".join(lines))
    assert {6, 30} == in_memory(tmp_path / "mountinfo")
    assert frozenset() == in_memory(tmp_path / "absent")


# An event that can be waited for together with file descriptors.


@pytest.mark.parametrize("before", [True, False])
def test_it_is_readable_once_it_is_set_and_stays_so(before: bool) -> None:
    event = PollableEvent()
    if before:
        event.set()
    end = event.fileno()
    assert end == event.fileno()
    assert before == bool(select.select([end], [], [], 0)[0])
    event.set()
    event.set()
    assert event.is_set()
    assert [end] == select.select([end], [], [], 0)[0]
    assert [event] == select.select([event], [], [], 0)[0]


def test_its_descriptor_is_closed_with_it_and_it_cannot_be_cleared() -> None:
    event = PollableEvent()
    end = event.fileno()
    assert os.fstat(end)
    with pytest.raises(TypeError, match="cannot be cleared"):
        event.clear()
    del event
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(end)


# Functions that are called after a change.


def test_all_are_called_in_order_until_they_end() -> None:
    listeners, called = Listeners(), list[str]()
    end = listeners.add(lambda: called.append("one"))
    listeners.add(lambda: called.append("two"))
    listeners.call()
    end()
    end()
    listeners.call()
    assert ["one", "two", "two"] == called


def test_a_file_in_a_fixed_version_is_never_updated_and_one_by_itself_until_it_is_replaced(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name for name in ("whole", "part", "alone", "edited", "away")]
    for one in folders[:4]:
        one.mkdir()
        (one / "c.yaml").touch()
    (tmp_path / "link").symlink_to(tmp_path / "alone/c.yaml")
    volume = "/pods/7/volumes/kubernetes.io~configmap/c"
    version = f"{volume}/..2026_11_27_20_00_00.123"
    mountinfo = tmp_path / "mountinfo"
    roots = {
        tmp_path: "/",
        folders[0]: volume,
        folders[1]: f"{version}/part",
        folders[2] / "c.yaml": "/home/c.yaml//deleted",
        folders[3] / "c.yaml": "/home/c.yaml",
    }
    lines = [f"2 1 8:1 {root} {at} rw - ext4 /dev/sda1 rw" for at, root in roots.items()]
    mountinfo.write_text("\n".join(lines))
    paths = [*(one / "c.yaml" for one in folders), tmp_path / "link", folders[1], folders[1]]
    replaced = "is mounted by itself, and another file has replaced it, which is not seen"
    expected = {
        folders[1] / "c.yaml": "is mounted by subPath, so that no new version of it is seen",
        folders[2] / "c.yaml": replaced,
        tmp_path / "link": replaced,
    }
    assert [
        f"{path} {how}: mount its whole volume at {path.parent}, without subPath"
        for path, how in expected.items()
    ] == list(fixed(paths, mountinfo))
    assert [] == list(fixed(paths, tmp_path / "none"))
