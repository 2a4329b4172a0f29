"""The node's labels for Node Feature Discovery."""

from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.configuration.sharing import Share, Sharing
from deviceplugin_gpu.offer.node_labels import clean, labels, publish
from deviceplugin_gpu.offer.resources import offer
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot

GIB = 1 << 30
MODEL = "NVIDIA A100-SXM4-80GB"


def a100(index: int, *, mig: bool = False, migs: tuple[Mig, ...] = ()) -> Gpu:
    return Gpu(
        index,
        f"GPU-{index}",
        MODEL,
        pci=f"0000:0{index}:00.0",
        memory=80 * GIB,
        compute=(8, 0),
        mig_enabled=mig or bool(migs),
        migs=migs,
    )


def t4(index: int) -> Gpu:
    return Gpu(index, f"GPU-{index}", "Tesla T4", memory=15 * GIB, compute=(7, 5))


def slice_(index: int, profile: str = "1g.10gb", parent: int = 0) -> Mig:
    return Mig(
        f"MIG-{parent}{index}",
        index,
        7 + index,
        0,
        profile,
        10 * GIB,
        slices=1,
        compute_slices=1,
        multiprocessors=14,
        engines={"copy": 1, "decoder": 2},
    )


def found(
    *gpus: Gpu, sys: Path = Path("/none"), driver: str = "580.95.05", **settings: object
) -> dict[str, str]:
    snapshot = Snapshot(gpus, driver=driver, cuda=(13, 0))
    chosen = GpuSettings(**settings)  # type: ignore[arg-type]
    made = labels(snapshot, offer(snapshot, chosen).units, chosen, sys)
    assert sorted(made) == [*made]
    assert all(name.startswith("nvidia.com/") for name in made)
    return {name.removeprefix("nvidia.com/"): value for name, value in made.items()}


def shared(**share: object) -> Sharing:
    return Sharing(shares=(Share("nvidia.com/gpu", 4, **share),))  # type: ignore[arg-type]


def test_gpus_of_one_model(tmp_path: Path) -> None:
    (tmp_path / "class/dmi/id").mkdir(parents=True)
    (tmp_path / "class/dmi/id/product_name").write_text("PowerEdge XE (R8545)\n")
    (tmp_path / "bus/pci/devices/0000:00:00.0").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:00:00.0/class").write_text("0x030200\n")
    assert {
        "cuda.driver-version.full": "580.95.05",
        "cuda.driver-version.major": "580",
        "cuda.driver-version.minor": "95",
        "cuda.driver-version.revision": "05",
        "cuda.driver.major": "580",
        "cuda.driver.minor": "95",
        "cuda.driver.rev": "05",
        "cuda.runtime-version.full": "13.0",
        "cuda.runtime-version.major": "13",
        "cuda.runtime-version.minor": "0",
        "cuda.runtime.major": "13",
        "cuda.runtime.minor": "0",
        "gpu.compute.major": "8",
        "gpu.compute.minor": "0",
        "gpu.count": "2",
        "gpu.family": "ampere",
        "gpu.machine": "PowerEdge-XE-R8545",
        "gpu.memory": "81920",
        "gpu.mode": "compute",
        "gpu.product": "NVIDIA-A100-SXM4-80GB",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "mig.capable": "true",
        "mps.capable": "false",
    } == found(a100(0), a100(1), sys=tmp_path)


def test_what_is_not_known_is_left_out() -> None:
    made = found(Gpu(0, "GPU-0", "Old one"), driver="")
    assert "unknown" == made["gpu.mode"]
    assert {"gpu.memory", "gpu.machine", "gpu.family", "cuda.driver.major"}.isdisjoint(made)
    bare = Snapshot((a100(0),), driver="580.95")
    made = labels(bare, offer(bare, GpuSettings()).units, GpuSettings(), Path("/none"))
    assert "580.95" == made["nvidia.com/cuda.driver-version.full"]
    assert {"nvidia.com/cuda.driver.rev", "nvidia.com/cuda.runtime.major"}.isdisjoint(made)


@pytest.mark.parametrize(
    ("compute", "family"),
    [
        ((3, 5), "kepler"),
        ((6, 1), "pascal"),
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 3), "blackwell"),
        ((12, 0), "blackwell"),
        ((2, 0), "undefined"),
    ],
)
def test_the_family_follows_from_the_compute_capability(
    compute: tuple[int, int], family: str
) -> None:
    assert family == found(Gpu(0, "GPU-0", "X", compute=compute))["gpu.family"]


def test_of_several_models_the_one_with_the_most_gpus_is_told_of() -> None:
    made = found(a100(0), t4(1), t4(2))
    assert ("Tesla-T4", "3", "turing", "15360") == (
        made["gpu.product"],
        made["gpu.count"],
        made["gpu.family"],
        made["gpu.memory"],
    )
    assert made == found(t4(2), t4(1), a100(0))
    assert "NVIDIA-A100-SXM4-80GB" == found(a100(0), t4(1))["gpu.product"]
    assert "Tesla-T4" == found(t4(0), a100(1))["gpu.product"]


def test_sharing_is_told() -> None:
    made = found(a100(0), a100(1), sharing=shared())
    assert ("NVIDIA-A100-SXM4-80GB-SHARED", "2", "4", "time-slicing") == (
        made["gpu.product"],
        made["gpu.count"],
        made["gpu.replicas"],
        made["gpu.sharing-strategy"],
    )
    made = found(a100(0), sharing=shared(rename="nvidia.com/gpu.shared"))
    assert "NVIDIA-A100-SXM4-80GB" == made["gpu.product"]
    mps = Sharing(mps=True, shares=(Share("nvidia.com/gpu", 2),))
    made = found(a100(0), sharing=mps, mps_root=Path("/mps"))
    assert ("mps", "true") == (made["gpu.sharing-strategy"], made["mps.capable"])


def test_mig_devices_of_one_profile_stand_for_gpus() -> None:
    made = found(a100(0, migs=(slice_(0), slice_(1))), mig_strategy="single")
    assert {
        "gpu.compute.major": "8",
        "gpu.compute.minor": "0",
        "gpu.count": "2",
        "gpu.engines.copy": "1",
        "gpu.engines.decoder": "2",
        "gpu.engines.encoder": "0",
        "gpu.engines.jpeg": "0",
        "gpu.engines.ofa": "0",
        "gpu.family": "ampere",
        "gpu.memory": "10240",
        "gpu.mode": "unknown",
        "gpu.multiprocessors": "14",
        "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.slices.ci": "1",
        "gpu.slices.gi": "1",
        "mig.strategy": "single",
    } == {name: value for name, value in made.items() if name.startswith(("gpu", "mig.s"))}


def test_single_without_mig_devices_is_called_invalid() -> None:
    made = found(a100(0, mig=True), mig_strategy="single")
    assert ("NVIDIA-A100-SXM4-80GB-MIG-INVALID", "0", "0", "0") == (
        made["gpu.product"],
        made["gpu.count"],
        made["gpu.replicas"],
        made["gpu.memory"],
    )
    assert "NVIDIA-A100-SXM4-80GB" == found(a100(0), mig_strategy="single")["gpu.product"]


def test_each_profile_has_its_labels_beside_those_of_gpus() -> None:
    made = found(
        a100(0),
        a100(1, migs=(slice_(0), slice_(1), slice_(2, "1g.10gb+me"))),
        a100(2, migs=(slice_(0, parent=2),)),
        mig_strategy="mixed",
    )
    assert ("1", "3", "1") == (
        made["gpu.count"],
        made["mig-1g.10gb.count"],
        made["mig-1g.10gb.me.count"],
    )
    assert "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me" == made["mig-1g.10gb.me.product"]
    assert "14" == made["mig-1g.10gb.multiprocessors"]
    assert "mixed" == made["mig.strategy"]


def test_more_labels_can_be_added_and_a_node_without_gpus_has_none() -> None:
    snapshot = Snapshot((t4(0),))
    extra = {"gpu.clique": "0a.7"}
    made = labels(snapshot, (), GpuSettings(), extra=extra)
    assert "0a.7" == made["nvidia.com/gpu.clique"]
    assert "nvidia.com/gpu.count" not in made, "nothing is offered"
    assert {} == labels(Snapshot(), (), GpuSettings(), extra=extra)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Tesla T4", "Tesla-T4"), (" (R) a/b ", "R-ab"), ("x" * 70, "x" * 63), ("-._", "")],
)
def test_values_are_such_as_labels_may_have(text: str, expected: str) -> None:
    assert expected == clean(text)


# The file.


def test_the_file_is_written_when_labels_change_and_tells_when(tmp_path: Path) -> None:
    path = tmp_path / "features.d" / "gpu"
    assert publish(path, {"nvidia.com/gpu.count": "2"}, lambda: 1000.4)
    assert "nvidia.com/gfd.timestamp=1000\nnvidia.com/gpu.count=2\n" == path.read_text()
    assert not publish(path, {"nvidia.com/gpu.count": "2"}, lambda: 2000)
    assert "nvidia.com/gfd.timestamp=1000\nnvidia.com/gpu.count=2\n" == path.read_text()
    assert publish(path, {"nvidia.com/gpu.count": "3"}, lambda: 3000)
    assert "nvidia.com/gfd.timestamp=3000\nnvidia.com/gpu.count=3\n" == path.read_text()
    assert publish(path, {})
    assert not path.exists()
    assert not publish(path, {})


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(dp.DiscoveryError, match=r"labels-file .*: mount its directory"):
        publish(tmp_path / "file" / "gpu", {"a": "b"})
