"""What slices say about GPUs: selectors for AMD's driver need only another driver's name."""

import pytest

from amd.machines import MI210, SMALL
from amd.tree import AmdTree, Build
from discovered import found
from dra.selecting import candidates, chosen, shipped

DRIVER = "amd-gpu.device-plugins"
WHOLE, DIVIDED = SMALL.addresses[:2]


@pytest.fixture
def divided(build: Build) -> AmdTree:
    """Return a node with a GPU in four parts."""
    tree = build()
    tree.divide(DIVIDED, "QPX", "NPS4")
    return tree


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('THEIRS.type == "amdgpu"', "whole"),
        ('THEIRS.type == "amdgpu-partition"', "parts"),
        ('THEIRS.type == "amdgpu-partition" && THEIRS.partitionProfile == "qpx_nps4"', "parts"),
        ('THEIRS.partitionProfile == "spx_nps1"', "whole"),
        ('THEIRS.deviceID == "0x74a1" && THEIRS.cardIndex == 1', "whole"),
        ("THEIRS.renderIndex == 128", "whole"),
        ('THEIRS.productName == "AMD_Instinct_MI300X_OAM"', "whole parts"),
        ('AMOUNTS.memory.compareTo(quantity("48Gi")) >= 0', "whole"),
        ('AMOUNTS.computeUnits.isLessThan(quantity("50"))', "parts"),
        ('AMOUNTS.simdUnits.compareTo(quantity("304")) == 0', "whole"),
        ('THEIRS.driverVersion.compareTo(semver("6.8.0")) > 0', "whole parts"),
        ('THEIRS.driverSrcVersion == "A6B0C2F29B2B9F9E6A64E19"', "whole parts"),
        (f'THEIRS.pciAddr == "{WHOLE}"', "whole"),
        (f'has(THEIRS.parentPciAddr) && THEIRS.parentPciAddr == "{DIVIDED}"', "parts"),
        (f'STANDARD.pciBusID == "{DIVIDED}"', "parts"),
        ('STANDARD.pcieRoot == "pci0000:00"', "whole parts"),
        ("THEIRS.numaNode == 0", "whole parts"),
        ('THEIRS.partitioning == "qpx_nps4" && THEIRS.model.startsWith("AMD I")', "parts"),
    ],
)
def test_a_selector_for_amds_driver_chooses_the_same(
    divided: AmdTree, expression: str, expected: str
) -> None:
    plugin = divided.plugin(include=(WHOLE, DIVIDED), resource_naming_strategy="mixed")
    among = candidates(plugin.discover(), DRIVER, divided.sys)
    assert 5 == len(among)
    kinds = {"whole": {WHOLE}, "parts": {f"{DIVIDED}-qpx_nps4-{part}" for part in range(4)}}
    assert set[str]().union(*(kinds[one] for one in expected.split())) == chosen(among, expression)


def test_the_shipped_class_selects_gpus(build: Build) -> None:
    among = candidates(build(MI210, links=False).plugin().discover(), DRIVER)
    (selector,) = shipped("amd").values()
    assert {*MI210.addresses} == {*among} == chosen(among, selector)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("6.12.12", "6.12.12"),
        ("6.10.5-2125197.24.04", "6.10.5"),
        ("5.18.2.22.40", "5.18.2"),
        ("6.7", "6.7"),
        ("odd", None),
        ("", None),
    ],
)
def test_a_driver_version_of_more_parts_can_be_compared(
    build: Build, version: str, expected: str | None
) -> None:
    tree = build()
    (tree.sys / "module/amdgpu/version").write_text(f"{version}\n")
    device = found(tree.plugin())[WHOLE]
    assert expected == device.attributes.get("driverVersion")
    assert (version or None) == device.attributes.get("driverVersionFull")
    assert candidates([device], DRIVER), "nothing of it is cut"


def test_what_is_not_known_is_absent(build: Build) -> None:
    tree = build(MI210, links=False)
    tree.refuse()
    (tree.sys / "module/amdgpu/version").unlink()
    (tree.cards[MI210.addresses[1]].folder / "mem_info_vram_total").write_text("9" * 20)
    devices = found(tree.plugin())
    first = devices[MI210.addresses[0]]
    assert {} == devices[MI210.addresses[1]].capacity, "nor is what cannot be"
    assert {"memory": MI210.memory} == dict(first.capacity), "of PCI"
    assert {"driverVersion", "driverVersionFull", "parentPciAddr", "partitionProfile"}.isdisjoint(
        first.attributes
    )


def test_what_changes_all_the_time_is_not_in_slices(build: Build) -> None:
    tree = build(MI210, links=False)
    plugin = tree.plugin()
    before = candidates(plugin.discover(), DRIVER)
    tree.use(tree.node(MI210.addresses[0]), 4711, 1 << 30)
    tree.count(MI210.addresses[0], "umc", 0, 3)
    tree.topology()
    assert before == candidates(plugin.discover(), DRIVER)
