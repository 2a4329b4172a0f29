"""The GPU plugin in every home; a simulated node has two GPUs of the fake driver."""

import re
import shutil
from pathlib import Path

from gpu.fake_library import build_or_skip
from gpu.fake_nvml import FakeNvml, Fleet
from homes.case import Case, Opened
from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn, make_node

PLUGIN = Plugin("gpu", "nvidia.com/gpu", None, environment={"DP_PASS_DEVICE_SPECS": "true"})


def look(given: Given) -> None:
    """A container has the UUID and the node of one GPU."""
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", given.envs["NVIDIA_VISIBLE_DEVICES"])
    assert 1 == sum(bool(re.fullmatch(r"/dev/nvidia\d+", node)) for node in given.nodes)
    assert not given.annotations


def hardware(folder: Path, cache: Path) -> StandIn:
    """Make two GPUs of the fake driver. Skips the test where there is no C compiler."""
    library = build_or_skip(cache)
    place = folder / "driver/usr/lib64"
    place.mkdir(parents=True)
    shutil.copy(library, place)
    fake = FakeNvml(folder / "nvml", Fleet.of(2))
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        make_node(folder / "driver/dev" / name)
    return StandIn(
        folder,
        {
            "DP_DRIVER_ROOT": str(folder / "driver"),
            "DP_DRIVER_ROOT_CTR_PATH": str(folder / "driver"),
            "FAKE_NVML_FLEET": str(fake.path),
        },
    )


CASE = Case(
    PLUGIN,
    look,  # no example: nvidia-smi comes from NVIDIA's runtime
    opened=Opened(PLUGIN, r"nvidia\d+", "rw"),
    hardware=hardware,
    flags=["--state-file=/run/deviceplugin-gpu/health.json"],
)
