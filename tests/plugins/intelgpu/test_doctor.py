"""What the doctor reports of Intel GPUs."""

import pytest

from deviceplugin.checks import Node
from deviceplugin_intelgpu import doctor
from intelgpu.machines import FLEX, SMALL, TWO_DRIVERS
from intelgpu.tree import Build, IntelTree


@pytest.fixture
def tree(build: Build) -> IntelTree:
    return build(TWO_DRIVERS)


def bad(tree: IntelTree) -> list[tuple[str, str]]:
    found = doctor.look(Node.at_root(tree.sys.parent))
    return [(one.verdict.value, one.found) for one in found if one.verdict != "ok"]


def test_what_is_missing_is_told(tree: IntelTree, build: Build) -> None:
    assert "2 on the PCI bus" == next(iter(doctor.look(Node.at_root(tree.sys.parent)))).found
    assert [] == bad(tree) == bad(build(FLEX)) == bad(build(SMALL))
    for path in (tree.dev / "dri").glob("renderD*"):
        path.unlink()
    ((verdict, found),) = bad(tree)
    assert ("failure", True) == (verdict, found.startswith("no render node"))
    other = build(TWO_DRIVERS)
    for card in TWO_DRIVERS.cards:
        other.unbind(card.address)
    ((verdict, found),) = bad(other)
    assert ("failure", True) == (verdict, found.startswith("no GPU that a driver has"))


def test_gpus_without_a_driver_are_named(tree: IntelTree) -> None:
    for card in TWO_DRIVERS.cards:
        tree.unbind(card.address)
    for driver in ("i915", "xe"):
        (tree.sys / "module" / driver).rmdir()
    (tree.sys / "module/vfio_pci").mkdir()
    ((verdict, found),) = bad(tree)
    assert ("failure", True) == (verdict, "no kernel driver i915 or xe" in found)
    assert "loaded instead: vfio_pci; cards: 0042:01:02.0 (no driver)" in found


def test_what_is_skipped_is_told(tree: IntelTree, build: Build) -> None:
    tree._unnumber("0042:01:05.0")
    (tree.folder("0042:01:05.0") / "survivability_mode").touch()
    expected = "it is in survivability mode: its firmware has to be repaired"
    assert [("warning", expected)] == bad(tree)
    hidden = build(FLEX)
    (hidden.sys / "module/intel_vgpu").mkdir()
    hidden.unbind("0000:03:00.1")
    expected = "it has 1 virtual functions, with no driver"
    assert [("warning", expected)] == bad(hidden)
