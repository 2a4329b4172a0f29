"""What slices say about GPUs: selectors for Intel's driver need only another driver's name."""

import pytest

from discovered import found
from dra.selecting import candidates, chosen, shipped
from intelgpu.machines import SMALL
from intelgpu.tree import Build, IntelTree

DRIVER = "intel-gpu.device-plugins"
CPU, FLEX, ARC, DIVIDED = (card.address for card in SMALL.cards)
PARTS = {f"{DIVIDED[:-1]}{number}" for number in (1, 2)}
NAMES = {"cpu": {CPU}, "flex": {FLEX}, "arc": {ARC}, "parts": PARTS}


@pytest.fixture
def tree(build: Build) -> IntelTree:
    """Return a node whose drivers say how much memory two GPUs have."""
    tree = build(SMALL)
    tree.divide(DIVIDED, 2)
    (tree.folder(FLEX) / f"drm/card{tree.numbers[FLEX]}/lmem_total_bytes").write_text(
        f"{6 << 30}\n"
    )
    for number in range(2):
        tile = tree.folder(ARC) / f"tile{number}"
        tile.mkdir()
        (tile / "physical_vram_size_bytes").write_text(f"{12 << 30}\n")
    return tree


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "VENDOR" && THEIRS.driver == "i915"', "cpu flex"),
        ("THEIRS.driver == 'vfio-pci' || THEIRS.driver == 'xe-vfio-pci'", ""),
        ('THEIRS.family.startsWith("Arc")', "arc parts"),
        ("THEIRS.family == 'Data Center Flex' && THEIRS.model == 'Flex 170'", "flex"),
        ("THEIRS.model == 'Unknown'", "cpu"),
        ("THEIRS.sriov == true", "flex arc"),
        ("!THEIRS.sriov && THEIRS.type == 'gpu'", "cpu"),
        ("THEIRS.type == 'vf'", "parts"),
        ("THEIRS.pciId == '0xe211'", "arc parts"),
        (f"THEIRS.pciAddress == '{FLEX}'", "flex"),
        (f"STANDARD.pciBusID == '{ARC}'", "arc"),
        ('has(AMOUNTS.memory) &&\n AMOUNTS.memory.compareTo(quantity("4Gi")) >= 0', "flex arc"),
        ('THEIRS.sriov && AMOUNTS.memory.compareTo(quantity("16Gi")) >= 0', "arc"),
        ('AMOUNTS.millicores.compareTo(quantity("1k")) == 0', "cpu flex arc parts"),
        ("THEIRS.product == '56c0'", "flex"),
    ],
)
def test_a_selector_for_intels_driver_chooses_the_same(
    tree: IntelTree, expression: str, expected: str
) -> None:
    among = candidates(tree.plugin().discover(), DRIVER, tree.sys)
    assert set[str]().union(*(NAMES[one] for one in expected.split())) == chosen(among, expression)


def test_each_shipped_class_selects_the_gpus_of_its_driver(tree: IntelTree) -> None:
    among = candidates(tree.plugin().discover(), DRIVER)
    i915, xe = (chosen(among, selector) for _, selector in sorted(shipped("intelgpu").items()))
    assert [NAMES["cpu"] | NAMES["flex"], NAMES["arc"] | PARTS] == [i915, xe]


def test_memory_that_a_driver_does_not_say_is_absent(tree: IntelTree) -> None:
    devices = found(tree.plugin())
    assert 0 == devices[CPU].capacity["memory"], "it uses the node's"
    assert all("memory" not in devices[part].capacity for part in PARTS)
    for text in ("", "0", "-1", "x", "9" * 17):
        (tree.folder(ARC) / "tile1/physical_vram_size_bytes").write_text(text)
        assert "memory" not in found(tree.plugin())[ARC].capacity
