"""The node's labels for Node Feature Discovery."""

from pathlib import Path
from typing import Any

import pytest

from deviceplugin_gpu.advertised.node_labels import labels
from deviceplugin_gpu.advertised.units import advertise
from deviceplugin_gpu.configuration.setting_kinds import Share, Sharing
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig

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
        mig_capable=True,
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
    made = labels(snapshot, advertise(snapshot, chosen).units, chosen, sys)
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


SUMMARY = (
    *("gpu.product", "gpu.family", "gpu.count", "gpu.replicas", "gpu.sharing-strategy"),
    *("gpu.memory", "mps.capable"),
)
A100 = "NVIDIA-A100-SXM4-80GB"
T4 = ("Tesla-T4", "turing")
DIVIDED = (a100(0, migs=(slice_(0), slice_(1))), a100(1, migs=(slice_(2),)))
MPS = {"sharing": Sharing(mps=True, shares=(Share("nvidia.com/gpu", 2),)), "mps_root": Path("/mps")}
RENAMED = {"sharing": shared(rename="nvidia.com/gpu.shared")}
SINGLE, MIXED = {"mig_strategy": "single"}, {"mig_strategy": "mixed"}


@pytest.mark.parametrize(
    ("gpus", "settings", "expected"),
    [
        # Of several models the one with the most GPUs is told of, and of as many the first.
        ((a100(0), t4(1), t4(2)), {}, (*T4, "3", "1", "none", "15360", "false")),
        ((t4(2), t4(1), a100(0)), {}, (*T4, "3", "1", "none", "15360", "false")),
        ((a100(0), t4(1)), {}, (A100, "ampere", "2", "1", "none", "81920", "false")),
        ((t4(0), a100(1)), {}, (*T4, "2", "1", "none", "15360", "false")),
        # Sharing.
        (
            (a100(0), a100(1)),
            {"sharing": shared()},
            (f"{A100}-SHARED", "ampere", "2", "4", "time-slicing", "81920", "false"),
        ),
        ((a100(0),), RENAMED, (A100, "ampere", "1", "4", "time-slicing", "81920", "false")),
        ((a100(0),), MPS, (f"{A100}-SHARED", "ampere", "1", "2", "mps", "81920", "true")),
        # Divided GPUs are counted and described beside their MIG devices.
        (DIVIDED, MIXED, (A100, "ampere", "2", "0", "none", "81920", "false")),
        (
            (a100(0, mig=True),),
            SINGLE,
            (f"{A100}-MIG-INVALID", "ampere", "0", "0", "", "0", "false"),
        ),
        ((a100(0),), SINGLE, (A100, "ampere", "1", "1", "none", "81920", "false")),
    ],
)
def test_gpus_are_summed_up(
    gpus: tuple[Gpu, ...], settings: dict[str, Any], expected: tuple[str, ...]
) -> None:
    made = found(*gpus, **settings)
    assert expected == tuple(made.get(name, "") for name in SUMMARY)


def test_the_driver_says_whether_a_gpu_can_be_divided(rig: GpuRig) -> None:
    file = rig.path / "labels"
    for mode, capable in (("unsupported", "false"), ("off", "true"), ("on", "true")):
        list(rig.has(Fleet.of(1, mig=mode)).plugin(labels_file=file).discover())
        assert f"nvidia.com/mig.capable={capable}\n" in file.read_text()


def test_what_is_not_known_is_left_out() -> None:
    made = found(Gpu(0, "GPU-0", "Old one"), driver="")
    assert "unknown" == made["gpu.mode"]
    assert {"gpu.memory", "gpu.machine", "gpu.family", "cuda.driver.major"}.isdisjoint(made)
    bare = Snapshot((a100(0),), driver="580.95")
    made = labels(bare, advertise(bare, GpuSettings()).units, GpuSettings(), Path("/none"))
    assert "580.95" == made["nvidia.com/cuda.driver-version.full"]
    assert {"nvidia.com/cuda.driver.rev", "nvidia.com/cuda.runtime.major"}.isdisjoint(made)


def test_the_family_follows_from_the_compute_capability() -> None:
    for compute, family in {
        (3, 5): "kepler",
        (6, 1): "pascal",
        (7, 0): "volta",
        (7, 5): "turing",
        (8, 6): "ampere",
        (8, 9): "ada-lovelace",
        (9, 0): "hopper",
        (10, 3): "blackwell",
        (12, 0): "blackwell",
        (13, 0): "rubin",
        (2, 0): "undefined",
    }.items():
        assert family == found(Gpu(0, "GPU-0", "X", compute=compute))["gpu.family"]


OF_MIG = {
    "engines.copy": "1",
    "engines.decoder": "2",
    "engines.encoder": "0",
    "engines.jpeg": "0",
    "engines.ofa": "0",
    "memory": "10240",
    "multiprocessors": "14",
    "replicas": "1",
    "sharing-strategy": "none",
    "slices.ci": "1",
    "slices.gi": "1",
}


def test_mig_devices_of_one_profile_stand_for_gpus() -> None:
    made = found(a100(0, migs=(slice_(0), slice_(1))), mig_strategy="single")
    assert {
        **{f"gpu.{name}": value for name, value in OF_MIG.items()},
        "gpu.compute.major": "8",
        "gpu.compute.minor": "0",
        "gpu.count": "2",
        "gpu.family": "ampere",
        "gpu.mode": "unknown",
        "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "mig.strategy": "single",
    } == {name: value for name, value in made.items() if name.startswith(("gpu", "mig.s"))}


def test_each_profile_has_its_labels_beside_those_of_gpus() -> None:
    made = found(
        a100(0),
        a100(1, migs=(slice_(0), slice_(1), slice_(2, "1g.10gb+me"))),
        a100(2, migs=(slice_(0, parent=2),)),
        mig_strategy="mixed",
    )
    assert ("3", "3", "1") == (
        made["gpu.count"],
        made["mig-1g.10gb.count"],
        made["mig-1g.10gb.me.count"],
    )
    own = {**OF_MIG, "count": "1", "product": f"{A100}-MIG-1g.10gb.me"}
    assert {f"mig-1g.10gb.me.{name}": value for name, value in own.items()} == {
        name: value for name, value in made.items() if name.startswith("mig-1g.10gb.me.")
    }
    assert "mixed" == made["mig.strategy"]


def test_a_node_that_offers_nothing_or_has_no_gpus_has_fewer_labels_or_none() -> None:
    made = labels(Snapshot((t4(0),)), (), GpuSettings(), Path("/none"))
    assert "nvidia.com/gpu.machine" not in made
    assert "nvidia.com/gpu.count" not in made, "nothing is offered"
    assert {} == labels(Snapshot(), (), GpuSettings(), Path("/none"))


def config(*records: tuple[int, bytes], signature: bytes = b"VF", first: int = 0x40) -> bytes:
    """Return a PCI configuration with a capability at 0x50, after another one at 0x40."""
    data = b"".join(bytes([number, 2 + len(text)]) + text for number, text in records)
    body = signature + data
    raw = bytearray(256)
    raw[0x06], raw[0x34] = 0x10, first
    raw[0x40:0x43] = bytes([0x05, 0x50, 3])
    raw[0x50 : 0x53 + len(body)] = bytes([0x09, 0x00, 3 + len(body)]) + body
    return bytes(raw)


def on_bus(sys: Path, raw: bytes, vendor: str = "0x10de") -> None:
    device = sys / "bus/pci/devices/0000:09:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "config").write_bytes(raw)


HOST = (0, b"550.54.10\0r550_00\0\0\0")


def of_vgpu(sys: Path) -> dict[str, str]:
    return {name: value for name, value in found(t4(0), sys=sys).items() if "vgpu" in name}


def changed(raw: bytes, at: int, value: int) -> bytes:
    return raw[:at] + bytes([value]) + raw[at + 1 :]


ABSENT, PRESENT = {"vgpu.present": "false"}, {"vgpu.present": "true"}
TOLD = {**PRESENT, "vgpu.host-driver-version": "550.54.10", "vgpu.host-driver-branch": "r550_00"}


@pytest.mark.parametrize(
    ("raw", "vendor", "expected"),
    [
        (config(HOST), "0x10de", TOLD),
        (config((3, b"abc"), HOST), "0x10de", TOLD),
        (config((1, b""), (2, b"x"), HOST), "0x10de", TOLD),
        (config(HOST, signature=b"XX"), "0x10de", ABSENT),
        (config(HOST)[:64], "0x10de", {}),
        (config(HOST), "0x8086", {}),
        (bytes(256), "0x10de", ABSENT),
        (config(HOST, first=0xFF), "0x10de", ABSENT),
        (config(HOST, first=0x04), "0x10de", ABSENT),
        (config((0, b"short")), "0x10de", PRESENT),
        (config((1, b"a")), "0x10de", PRESENT),
        (config(), "0x10de", PRESENT),
        pytest.param(
            changed(config(HOST, signature=b"XX"), 0x51, 0x40), "0x10de", ABSENT, id="round"
        ),
        pytest.param(changed(config((1, b"a"), HOST), 0x56, 0), "0x10de", PRESENT, id="no length"),
    ],
)
def test_a_virtual_gpu_tells_of_its_host_unless_it_is_odd_or_none(
    tmp_path: Path, raw: bytes, vendor: str, expected: dict[str, str]
) -> None:
    on_bus(tmp_path, raw, vendor)
    assert expected == of_vgpu(tmp_path)


CLUSTER = "12345678-9abc-def0-1234-56789abcdef0"


@pytest.mark.parametrize("without", [None, "nvmlDeviceGetGpuFabricInfoV"])
def test_the_clique_is_that_of_all_gpus_of_a_fabric(rig: GpuRig, without: str | None) -> None:
    file = rig.path / "gpu"
    rig.has(Fleet.of(2, fabric="completed", cluster=CLUSTER, clique=7))
    if without:
        rig.fake.fail(without, 13)
    plugin = rig.plugin(labels_file=file)
    plugin.discover()
    assert f"nvidia.com/gpu.clique={CLUSTER}.7\n" in file.read_text()
    rig.fake.change(1, clique=8)
    plugin.discover()
    assert "clique" not in file.read_text()


@pytest.mark.parametrize(
    "values", [{}, {"fabric": "progress", "cluster": CLUSTER}, {"fabric": "completed"}]
)
def test_gpus_of_no_fabric_have_no_clique(rig: GpuRig, values: dict[str, Any]) -> None:
    snapshot = rig.has(Fleet.of(2, **values)).driver().poll().snapshot
    assert {""} == {gpu.fabric for gpu in snapshot.gpus}
