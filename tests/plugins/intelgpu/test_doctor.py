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


def test_a_gpu_that_is_skipped_is_told(tree: IntelTree) -> None:
    tree._unnumber("0042:01:05.0")
    (tree.folder("0042:01:05.0") / "survivability_mode").touch()
    expected = "it is in survivability mode: its firmware has to be repaired"
    assert [("warning", expected)] == bad(tree)


@pytest.mark.parametrize("driver", ["vfio-pci", ""])
def test_virtual_functions_that_hide_their_card_for_nothing_are_told(
    build: Build, driver: str
) -> None:
    tree = build(FLEX)
    (tree.sys / "module/intel_vgpu").mkdir()
    tree.unbind("0000:03:00.1")
    if driver:
        tree.bind("0000:03:00.1", driver)
    shown = driver or "no driver"
    assert [("warning", f"it has 1 virtual functions, with {shown}")] == bad(tree)


def test_a_number_without_functions_is_told(build: Build) -> None:
    tree = build(FLEX)
    tree.divide("0000:03:00.0", 0)
    (tree.folder("0000:03:00.0") / "sriov_numvfs").write_text("1\n")
    assert [("warning", "it has 0 virtual functions, with no driver")] == bad(tree)
