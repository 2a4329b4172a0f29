"""The labels of the node, as Intel's rules for Node Feature Discovery have them."""

from pathlib import Path

import pytest

from intelgpu.machines import FLEX, MAX, SMALL, TIGER_LAKE, Machine
from intelgpu.plugin import Build, Make

PRESENT = {"intel.feature.node.kubernetes.io/gpu": "true"}


def written(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (TIGER_LAKE, {"device-id.0300-9a49.count": "1", "device-id.0300-9a49.present": "true"}),
        (
            MAX,
            {
                "device-id.0380-0bd5.count": "8",
                "device-id.0380-0bd5.present": "true",
                "device.count": "8",
                "family": "Max_Series",
                "product": "Max_1550",
            },
        ),
        (
            FLEX,
            {
                "device-id.0380-56c0.count": "2",
                "device-id.0380-56c0.present": "true",
                "device.count": "2",
                "family": "Flex_Series",
                "product": "Flex_170",
            },
        ),
    ],
    ids=["tiger-lake", "max", "flex"],
)
def test_the_labels_are_those_of_intels_rules(
    build: Build, make: Make, tmp_path: Path, machine: Machine, expected: dict[str, str]
) -> None:
    path = tmp_path / "features.d/intelgpu"
    make(build(machine), labels_file=path).discover()
    labels = {f"gpu.intel.com/{name}": value for name, value in expected.items()}
    assert {**labels, **PRESENT} == written(path)


def test_labels_go_with_the_last_gpu(build: Build, make: Make, tmp_path: Path) -> None:
    tree, path = build(SMALL), tmp_path / "labels"
    plugin = make(tree, labels_file=path)
    plugin.discover()
    assert "2" == written(path)["gpu.intel.com/device-id.0300-e211.count"]
    for card in SMALL.cards:
        tree.vanish(card.address)
    plugin.discover()
    assert not path.exists()


def test_labels_that_cannot_be_written_are_told_once(
    build: Build, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    plugin = make(build(TIGER_LAKE), labels_file=tmp_path / "file/labels")
    assert 1 == len([*plugin.discover()]) == len([*plugin.discover()])
    (record,) = [one for one in caplog.records if one.message == "labels not written"]
    assert f"{tmp_path}/file" in vars(record)["problem"]
