"""What the doctor reports of Intel GPUs."""

import pytest

from deviceplugin.checks import Finding, Node
from deviceplugin_intelgpu import doctor
from intelgpu.machines import FLEX, SMALL, TWO_DRIVERS
from intelgpu.tree import Build, IntelTree


@pytest.fixture
def tree(build: Build) -> IntelTree:
    return build(TWO_DRIVERS)


def findings(tree: IntelTree) -> list[Finding]:
    return list(doctor.look(Node.at_root(tree.sys.parent)))


def bad(tree: IntelTree) -> list[tuple[str, str]]:
    return [(one.verdict.value, one.found) for one in findings(tree) if one.verdict != "ok"]


def test_gpus_that_can_be_used_are_ok(tree: IntelTree, build: Build) -> None:
    assert ["2 on the PCI bus"] == [one.found for one in findings(tree)][:1]
    assert [] == bad(tree) == bad(build(FLEX)) == bad(build(SMALL))


def test_gpus_without_a_driver_are_named(tree: IntelTree) -> None:
    for address in TWO_DRIVERS.cards:
        tree.unbind(address.address)
    for driver in ("i915", "xe"):
        (tree.sys / "module" / driver).rmdir()
    (tree.sys / "module/vfio_pci").mkdir()
    ((verdict, found),) = bad(tree)
    assert "failure" == verdict
    assert "no kernel driver i915 or xe" in found
    assert "loaded instead: vfio_pci; cards: 0042:01:02.0 (no driver)" in found


def test_a_driver_that_takes_no_gpu_is_told(tree: IntelTree) -> None:
    for card in TWO_DRIVERS.cards:
        tree.unbind(card.address)
    ((verdict, found),) = bad(tree)
    assert ("failure", True) == (verdict, found.startswith("no GPU that a driver has"))


def test_missing_device_nodes_are_told(tree: IntelTree) -> None:
    for path in (tree.dev / "dri").glob("renderD*"):
        path.unlink()
    ((verdict, found),) = bad(tree)
    assert ("failure", True) == (verdict, found.startswith("no render node"))


def test_a_gpu_that_is_skipped_is_told(tree: IntelTree) -> None:
    tree._unnumber("0042:01:05.0")
    (tree.folder("0042:01:05.0") / "survivability_mode").touch()
    assert [("warning", "it is in survivability mode: its firmware has to be repaired")] == bad(
        tree
    )


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
