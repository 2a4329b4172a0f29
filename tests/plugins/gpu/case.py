"""The GPU plugin in every home; a simulated node has two GPUs of the fake driver."""

import re
import shutil
from pathlib import Path

from gpu.driver_root import DriverRoot
from gpu.fake_library import build_or_skip
from gpu.fake_nvml import H100, FakeGpu, FakeNvml, Fleet
from homes.case import Case, Opened
from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn, make_node

NEW = "GPU-0000000a-0000-4000-8000-00000000000a"
PLUGIN = Plugin("gpu", "nvidia.com/gpu", None, environment={"DP_PASS_DEVICE_SPECS": "true"})


def look(given: Given) -> None:
    """A container has the UUID and the node of one GPU."""
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", given.envs["NVIDIA_VISIBLE_DEVICES"])
    assert 1 == sum(bool(re.fullmatch(r"/dev/nvidia\d+", node)) for node in given.nodes)
    assert not given.annotations


def hardware(folder: Path, cache: Path) -> StandIn:
    """Make two GPUs that can be divided, of the fake driver. Skip without a C compiler."""
    return _make(folder, cache, Fleet.of(2, **H100))


def rebooted(folder: Path, cache: Path) -> StandIn:
    """Make the same two with each other's device nodes, and a new one between them."""
    first, other = Fleet.of(2).gpus
    uuids = [other.uuid, NEW, first.uuid]
    gpus = tuple(FakeGpu(slot, values={"uuid": uuid}) for slot, uuid in enumerate(uuids))
    return _make(folder, cache, Fleet(gpus))


def identify(given: Given) -> None:
    """A container has the node of the GPU whose UUID it has."""
    first, other = Fleet.of(2).gpus
    nodes = {other.uuid: "/dev/nvidia0", NEW: "/dev/nvidia1", first.uuid: "/dev/nvidia2"}
    (node,) = (node for node in given.nodes if re.fullmatch(r"/dev/nvidia\d+", node))
    assert nodes[given.envs["NVIDIA_VISIBLE_DEVICES"]] == node


def _make(folder: Path, cache: Path, fleet: Fleet) -> StandIn:
    library = build_or_skip(cache)
    place = folder / "driver/usr/lib64"
    DriverRoot(folder / "driver", cache).install()
    shutil.copy(library, place)
    fake = FakeNvml(folder / "nvml", fleet)
    for name in (*(f"nvidia{gpu.slot}" for gpu in fleet.gpus), "nvidiactl"):
        make_node(folder / "driver/dev" / name)
    return StandIn(
        folder,
        {
            "DP_DRIVER_ROOT": str(folder / "driver"),
            "DP_DRIVER_ROOT_CTR_PATH": str(folder / "driver"),
            "FAKE_NVML_FLEET": str(fake.path),
        },
        writable=["nvml"],
    )


CASE = Case(
    PLUGIN,
    look,  # no example: nvidia-smi comes from NVIDIA's runtime
    opened=Opened(PLUGIN, r"nvidia\d+", "rw"),
    hardware=hardware,
    rebooted=rebooted,
    identify=identify,
    flags=["--state-file=/run/deviceplugin-gpu/health.json"],
)
