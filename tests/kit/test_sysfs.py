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
def tree(tmp_path: Path, kernel: FailingKernel) -> Sysfs:
    root = tmp_path / "sys"
    (root / CARD).mkdir(parents=True)
    return Sysfs(root, kernel)


def write(tree: Sysfs, name: str, text: str | bytes) -> Path:
    path = tree.root / CARD / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Text.


def test_a_value_is_read_without_the_newline_at_its_end_and_what_is_no_text_is_escaped(
    tree: Sysfs,
) -> None:
    path = write(tree, "vendor", " 0x8086\n")
    assert "0x8086" == tree.read(f"{CARD}/vendor") == tree.read(path) == tree.text(path)
    assert "caf\\xc3\\xa9\\xff" == tree.read(write(tree, "name", b"caf\xc3\xa9\xff"))
    os.mkfifo(tree.root / CARD / "pipe")
    assert "" == tree.read(f"{CARD}/pipe"), "and it does not hang"
    with pytest.raises(UnreadableError, match="Is a directory"):
        tree.read(CARD)


def test_an_attribute_of_several_pages_is_read_as_far_as_is_asked_for(tree: Sysfs) -> None:
    lines = [f"0x{number:08x} : 0x00001000 : R" for number in range(400)]
    path = write(tree, "bad_pages", "\n".join(lines))
    assert lines == tree.read(path, most=1 << 20).splitlines()
    assert [2 * 4096, 4096] == [len(tree.read(path, most=4097)), len(tree.read(path))]


def test_only_what_is_absent_has_a_default(tree: Sysfs, kernel: FailingKernel) -> None:
    path = tree.root / CARD / "vendor"
    assert ("", -1) == (tree.read(path, ""), tree.number(path, default=-1))
    for read in (tree.read, tree.number, tree.link):
        with pytest.raises(AbsentError) as caught:
            read(path)
        assert f"{path}: No such file or directory" == str(caught.value)
        assert (str(path), "No such file or directory") == (caught.value.place, caught.value.reason)
    write(tree, "vendor", "")
    assert "" == tree.read(path, "none")
    kernel.faults[path] = errno.EPERM
    with pytest.raises(UnreadableError):
        tree.read(path, "none")


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


# Numbers.


def test_a_number_is_read(tree: Sysfs) -> None:
    for text, expected in (("0\n", 0), ("-1\n", -1), ("18446744073709551615\n", 2**64 - 1)):
        assert expected == tree.number(write(tree, "n", text))
    for text in ("0x74a1\n", "74A1"):
        assert 0x74A1 == tree.number(write(tree, "n", text), 16)


@pytest.mark.parametrize(
    ("text", "base", "expected"),
    [
        ("", 10, "an empty value is not a number"),
        ("1_0", 10, "'1_0' is not a number"),
        ("0x10", 10, "'0x10' is not a number"),
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
    with pytest.raises(OddError, match="card0: not a link"):
        tree.link(CARD)
    kernel.faults[tree.root / CARD / "driver"] = errno.ENODEV
    for read in (tree.link, tree.follow):
        with pytest.raises(UnreadableError, match="card0/driver: No such device"):
            read(f"{CARD}/driver")


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


def test_a_root_that_is_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real/devices").mkdir(parents=True)
    (tmp_path / "sys").symlink_to("real")
    assert tmp_path / "real/devices" == Sysfs(tmp_path / "sys").follow("devices")


def test_a_circle_is_told_by_pythons_of_any_age(
    tree: Sysfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> Path:
        raise RuntimeError("Symlink loop")

    monkeypatch.setattr(Path, "resolve", resolve)
    with pytest.raises(OSError, match="Too many levels"):
        Kernel().resolve(str(tree.root))


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
