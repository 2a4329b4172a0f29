"""The labels of the node, as AMD's node labeller has them."""

from pathlib import Path

import pytest

from amd.machines import MI210, MI308, SMALL, VEGA
from amd.plugin import Build, Make


def written(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_the_labels_are_those_of_amds_labeller(build: Build, make: Make, tmp_path: Path) -> None:
    path = tmp_path / "features.d/amd"
    list(make(build(VEGA), labels_file=path).discover())
    facts = {
        "device-id": "6860",
        "product-name": "Radeon_Instinct_MI25",
        "vram": "16G",
        "simd-count": "256",
        "cu-count": "64",
    }
    assert {
        "amd.com/gpu.driver-version": "6.8.5",
        "amd.com/gpu.driver-src-version": "A6B0C2F29B2B9F9E6A64E19",
        "amd.com/gpu.compute-partitioning-supported": "false",
        "amd.com/gpu.memory-partitioning-supported": "false",
        **{f"amd.com/gpu.{kind}": value for kind, value in facts.items()},
        **{f"beta.amd.com/gpu.{kind}": value for kind, value in facts.items()},
        **{f"beta.amd.com/gpu.{kind}.{value}": "1" for kind, value in facts.items()},
    } == written(path)


def test_partitions_are_counted(build: Build, make: Make, tmp_path: Path) -> None:
    path = tmp_path / "labels"
    list(make(build(MI308, links=False), labels_file=path).discover())
    found = written(path)
    assert "48G" == found["amd.com/gpu.vram"]
    assert "20" == found["amd.com/gpu.cu-count"]
    assert "32" == found["beta.amd.com/gpu.cu-count.20"]
    assert "cpx_nps1" == found["amd.com/gpu.compute-memory-partition"]
    assert "true" == found["amd.com/gpu.compute-partitioning-supported"]


def test_facts_that_differ_are_counted_by_value(build: Build, make: Make, tmp_path: Path) -> None:
    tree, path = build(), tmp_path / "labels"
    tree.divide(SMALL.addresses[0], "QPX")
    list(make(tree, resource_naming_strategy="mixed", labels_file=path).discover())
    found = written(path)
    assert ("3", "4") == (found["amd.com/gpu.vram.48G"], found["amd.com/gpu.vram.12G"])
    assert "amd.com/gpu.vram" not in found
    assert "amd.com/gpu.compute-memory-partition" not in found


def test_without_privilege_memory_is_what_pci_says(
    build: Build, make: Make, tmp_path: Path
) -> None:
    tree, path = build(MI210, links=False), tmp_path / "labels"
    tree.refuse()
    list(make(tree, labels_file=path).discover())
    found = written(path)
    assert "64G" == found["amd.com/gpu.vram"]
    assert "amd.com/gpu.cu-count" not in found


def test_labels_go_with_the_last_gpu(build: Build, make: Make, tmp_path: Path) -> None:
    tree, path = build(VEGA), tmp_path / "labels"
    plugin = make(tree, labels_file=path)
    list(plugin.discover())
    tree.vanish(VEGA.addresses[0])
    list(plugin.discover())
    assert not path.exists()


def test_labels_that_cannot_be_written_are_told_once(
    build: Build, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    plugin = make(build(VEGA), labels_file=tmp_path / "file/labels")
    assert 1 == len(list(plugin.discover())) == len(list(plugin.discover()))
    (record,) = [one for one in caplog.records if one.message == "labels not written"]
    assert f"{tmp_path}/file" in vars(record)["problem"]
