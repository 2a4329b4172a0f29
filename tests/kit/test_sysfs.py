"""Reading sysfs: absent, unreadable and odd are told apart, whatever the kernel does meanwhile."""

import ast
import errno
import os
import re
import sys
from pathlib import Path

import pytest

from deviceplugin.kit import sysfs
from deviceplugin.kit.sysfs import (
    AbsentError,
    Kernel,
    OddError,
    Sysfs,
    SysfsError,
    UnreadableError,
    natural,
)
from deviceplugin_testing.fixture import FailingKernel

CARD = "class/drm/card0"


@pytest.fixture
def kernel() -> FailingKernel:
    return FailingKernel()


@pytest.fixture
def tree(tmp_path: Path, kernel: FailingKernel) -> Sysfs:
    root = tmp_path / "sys"
    (root / CARD).mkdir(parents=True)
    return Sysfs(root, kernel)


def write(tree: Sysfs, name: str, text: str | bytes) -> Path:
    path = tree.root / CARD / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Text.


def test_an_attribute_of_several_pages_is_read_as_far_as_is_asked_for(tree: Sysfs) -> None:
    lines = [f"0x{number:08x} : 0x00001000 : R" for number in range(400)]
    path = write(tree, "bad_pages", "\n".join(lines))
    assert lines == tree.read(path, most=1 << 20).splitlines()
    assert 2 * 4096 == len(tree.read(path, most=4097))
    assert 4096 == len(tree.read(path))


def test_a_value_is_read_without_the_newline_at_its_end(tree: Sysfs) -> None:
    path = write(tree, "vendor", " 0x8086\n")
    assert "0x8086" == tree.read(f"{CARD}/vendor") == tree.read(path) == tree.text(path)


def test_what_is_absent_says_where_it_was_looked_for(tree: Sysfs) -> None:
    with pytest.raises(AbsentError) as caught:
        tree.read(f"{CARD}/vendor")
    assert f"{tree.root}/{CARD}/vendor: No such file or directory" == str(caught.value)
    assert (f"{tree.root}/{CARD}/vendor", "No such file or directory") == (
        caught.value.place,
        caught.value.reason,
    )


def test_only_what_is_absent_has_a_default(tree: Sysfs, kernel: FailingKernel) -> None:
    assert "" == tree.read(f"{CARD}/vendor", "")
    write(tree, "vendor", "")
    assert "" == tree.read(f"{CARD}/vendor", "none")
    kernel.faults[tree.root / CARD / "vendor"] = errno.EPERM
    with pytest.raises(UnreadableError):
        tree.read(f"{CARD}/vendor", "none")


def test_a_file_in_the_place_of_a_directory_makes_what_is_below_absent(tree: Sysfs) -> None:
    write(tree, "device", "x")
    with pytest.raises(AbsentError, match=r"card0/device/vendor: Not a directory$"):
        tree.read(f"{CARD}/device/vendor")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.ENODEV])
def test_what_the_kernel_does_not_give_is_unreadable_with_its_reason(
    tree: Sysfs, kernel: FailingKernel, number: int
) -> None:
    path = write(tree, "vendor", "0x8086\n")
    kernel.faults[path] = number
    with pytest.raises(UnreadableError) as caught:
        tree.read(path)
    assert (f"{path}: {os.strerror(number)}", number) == (str(caught.value), caught.value.errno)
    assert "" == tree.text(path)


def test_a_fault_that_is_mended_is_gone(tree: Sysfs, kernel: FailingKernel) -> None:
    path = write(tree, "vendor", "0x8086\n")
    kernel.faults[tree.root / "class"] = errno.EIO  # below it too, and nothing beside it
    assert "" == tree.text(path)
    kernel.faults = {f"{tree.root}/cla": errno.EIO}  # type: ignore[misc]
    assert "0x8086" == tree.text(path)


def test_an_error_without_a_number_has_a_reason_too() -> None:
    assert "/sys/x: odd" == str(UnreadableError("/sys/x", OSError("odd")))


def test_bytes_that_are_no_text_are_escaped(tree: Sysfs) -> None:
    assert "caf\\xc3\\xa9\\xff" == tree.read(write(tree, "name", b"caf\xc3\xa9\xff"))


def test_a_pipe_in_the_place_of_a_value_does_not_hang(tree: Sysfs) -> None:
    os.mkfifo(tree.root / CARD / "vendor")
    assert "" == tree.read(f"{CARD}/vendor")


def test_a_directory_in_the_place_of_a_value_is_unreadable(tree: Sysfs) -> None:
    with pytest.raises(UnreadableError, match="Is a directory"):
        tree.read(CARD)


# Numbers.


@pytest.mark.parametrize(
    ("text", "base", "expected"),
    [
        ("0\n", 10, 0),
        ("-1\n", 10, -1),
        ("18446744073709551615\n", 10, 2**64 - 1),
        ("0x74a1\n", 16, 0x74A1),
        ("74A1", 16, 0x74A1),
    ],
)
def test_a_number_is_read(tree: Sysfs, text: str, base: int, expected: int) -> None:
    assert expected == tree.number(write(tree, "n", text), base)


@pytest.mark.parametrize(
    ("text", "base", "expected"),
    [
        ("", 10, "an empty value is not a number"),
        ("1_0", 10, "'1_0' is not a number"),
        ("0x10", 10, "'0x10' is not a number"),
        ("1 2", 10, "'1 2' is not a number"),
        ("9" * 5000, 10, f"'{'9' * 40}' is not a number"),
        ("0xgg", 16, "'0xgg' is not a hexadecimal number"),
        ("-1", 16, "'-1' is not a hexadecimal number"),
    ],
)
def test_what_is_no_number_is_odd(tree: Sysfs, text: str, base: int, expected: str) -> None:
    path = write(tree, "n", text)
    with pytest.raises(OddError) as caught:
        tree.number(path, base, 7)
    assert f"{path}: {expected}" == str(caught.value)


def test_an_absent_number_has_its_default(tree: Sysfs) -> None:
    assert -1 == tree.number("numa_node", default=-1)
    with pytest.raises(AbsentError):
        tree.number("numa_node")


# Directories.


def test_names_are_in_natural_order(tree: Sysfs) -> None:
    names = ["renderD1280", "card10", "renderD128", "card2", "card2-1"]
    for name in names:
        (tree.root / CARD / name).mkdir()
    assert ["card2", "card2-1", "card10", "renderD128", "renderD1280"] == tree.names(CARD)
    found = tree.entries(CARD, re.compile("card[0-9]+"))
    assert [tree.root / CARD / "card2", tree.root / CARD / "card10"] == found


def test_names_that_differ_never_tie() -> None:
    assert ["card02", "card2"] == sorted(["card2", "card02"], key=natural)
    assert 2 == len({natural("9" * 70), natural("0" + "9" * 70)})


def test_a_directory_that_cannot_be_listed_is_told(tree: Sysfs, kernel: FailingKernel) -> None:
    with pytest.raises(AbsentError, match="class/accel: No such file or directory"):
        tree.names("class/accel")
    kernel.faults[tree.root / CARD] = errno.EACCES
    with pytest.raises(UnreadableError, match="class/drm/card0: Permission denied"):
        tree.entries(CARD, re.compile(".*"))


def test_paths_match_part_by_part(tree: Sysfs, kernel: FailingKernel) -> None:
    for name in ("a0/x1", "a0/y1", "a10/x1", "a2/x1", "b0/x1"):
        (tree.root / CARD / name).mkdir(parents=True)
    parts = [re.compile("a[0-9]+"), re.compile("x[0-9]+")]
    kernel.faults[tree.root / CARD / "a10"] = errno.EIO
    base = tree.root / CARD
    assert [base / "a0/x1", base / "a2/x1"] == list(tree.matches(CARD, parts))
    assert [base] == list(tree.matches(CARD, []))


# Links.


def test_a_link_says_the_name_of_what_it_leads_to(tree: Sysfs, kernel: FailingKernel) -> None:
    (tree.root / CARD / "driver").symlink_to("../../../bus/pci/drivers/amdgpu")
    assert "amdgpu" == tree.link(f"{CARD}/driver")
    with pytest.raises(AbsentError):
        tree.link(f"{CARD}/iommu_group")
    with pytest.raises(OddError, match="card0: not a link"):
        tree.link(CARD)
    kernel.faults[tree.root / CARD / "driver"] = errno.ENODEV
    with pytest.raises(UnreadableError, match="card0/driver: No such device"):
        tree.link(f"{CARD}/driver")


@pytest.mark.parametrize(
    ("target", "error", "reason"),
    [
        (None, AbsentError, "No such file or directory"),
        ("nowhere", OddError, "a broken link"),
        ("device", OddError, "a loop of links"),
        ("/proc", OddError, "leads out of {root}"),
        ("../../../..", OddError, "leads out of {root}"),
        ("{root}", OddError, "leads out of {root}"),
    ],
)
def test_a_link_that_leads_astray_is_told(
    tree: Sysfs, target: str | None, error: type[SysfsError], reason: str
) -> None:
    path = tree.root / CARD / "device"
    if target is not None:
        path.symlink_to(target.format(root=tree.root))
    with pytest.raises(error) as caught:
        tree.follow(path)
    assert f"{path}: {reason.format(root=tree.root)}" == str(caught.value)


def test_a_link_that_cannot_be_followed_now_is_unreadable(
    tree: Sysfs, kernel: FailingKernel
) -> None:
    kernel.faults[tree.root / CARD] = errno.ENODEV
    with pytest.raises(UnreadableError, match="No such device"):
        tree.follow(CARD)


def test_a_circle_is_told_by_pythons_of_any_age(
    tree: Sysfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> Path:
        raise RuntimeError("Symlink loop")

    monkeypatch.setattr(Path, "resolve", resolve)
    with pytest.raises(OSError, match="Too many levels"):
        Kernel().resolve(str(tree.root))


def test_a_root_that_is_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real/devices").mkdir(parents=True)
    (tmp_path / "sys").symlink_to("real")
    assert tmp_path / "real/devices" == Sysfs(tmp_path / "sys").follow("devices")


# The file by itself.


def test_the_module_runs_on_a_host_with_python_3_9_and_nothing_else() -> None:
    source = Path(sysfs.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 9))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes
    }
    assert {str(name).partition(".")[0] for name in modules} <= sys.stdlib_module_names
    assert "from __future__ import annotations" in source
