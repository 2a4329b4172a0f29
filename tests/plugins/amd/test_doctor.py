"""What the doctor says of AMD GPUs."""

import pytest

from amd.machines import SMALL
from amd.plugin import Build
from amd.tree import AmdTree
from deviceplugin.checks import Finding, Node
from deviceplugin_amd import doctor


@pytest.fixture
def tree(build: Build) -> AmdTree:
    return build()


def findings(tree: AmdTree) -> list[Finding]:
    return list(doctor.look(Node.at_root(tree.sys.parent)))


def bad(tree: AmdTree) -> list[tuple[str, str]]:
    return [(one.verdict.value, one.found) for one in findings(tree) if one.verdict != "ok"]


def test_gpus_that_can_be_used_are_ok(tree: AmdTree) -> None:
    assert ["4 on the PCI bus"] == [one.found for one in findings(tree)][:1]
    assert [] == bad(tree)


def test_what_is_missing_is_said(tree: AmdTree) -> None:
    (tree.dev / "kfd").unlink()
    ((verdict, found),) = bad(tree)
    assert ("failure", "no device file of KFD; looked for /dev/kfd") == (verdict, found)


def test_gpus_without_the_driver_are_named(tree: AmdTree) -> None:
    (tree.sys / "module/amdgpu").rename(tree.sys / "module/radeon")
    for card in tree.cards.values():
        (card.folder / "driver").unlink()
    ((verdict, found),) = bad(tree)
    assert "failure" == verdict
    assert "loaded instead: radeon; cards: 0000:05:00.0 (no driver)" in found


def test_a_gpu_that_is_skipped_is_said(tree: AmdTree) -> None:
    (tree.cards[SMALL.addresses[0]].folder / "current_compute_partition").write_text("CPX\n")
    assert [("warning", "it is cpx_nps1, and its KFD nodes are 1 of another style")] == bad(tree)


def test_a_topology_that_is_hidden_is_said(tree: AmdTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.refuse()
    monkeypatch.setattr(doctor, "Sysfs", lambda _root: tree.sysfs)
    ((verdict, found),) = bad(tree)
    assert "warning" == verdict
    assert found.endswith("/properties: Operation not permitted")
