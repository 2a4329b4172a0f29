"""The pages for the first hour: each is carried out, command by command, and timed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.container import BIN
from cluster.following import Followed, follow
from cluster.small_cluster import PLUGINS, SHELL, running, why_not
from gpu.driver_root import DriverRoot
from gpu.fake_library import build_or_skip, kept
from gpu.fake_nvml import FakeGpu, FakeNvml, Fleet

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "demo/examples"
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.slow,  # a kubectl for each step, and plugins
]
Timed = Callable[[str, Followed], None]


@pytest.fixture
def timed(record_property: Callable[[str, object], None]) -> Timed:
    """Have the end of the run say how long the commands of a page took."""

    def record(page: str, done: Followed) -> None:
        record_property("page", f"{page}: {len(done.commands)} commands, {done.seconds:.1f} s")

    return record


def test_dra_on_one_node(timed: Timed) -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        instead = [("sudo ", ""), ("/etc/", f"{cluster.node.root}/etc/")]
        page = (EXAMPLES / "dra/README.md").read_text()
        timed("DRA on one node", follow(page, cluster.reader(), instead=instead))


SMI = """#!/bin/sh
echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: $NVIDIA_VISIBLE_DEVICES)"
"""
"""What NVIDIA's container runtime brings."""
UUIDS = ("GPU-6f1d0c3e-52a7-4b7e-9d51-0a8be2c4f713", "GPU-c20e9b84-1d3f-4e60-8a7c-5b92f6d0e1a8")


def test_nvidia_gpus_on_a_cluster(
    timed: Timed, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    cache = kept(pytestconfig, "fake-nvml")
    library = build_or_skip(cache)
    DriverRoot(tmp_path, cache).install()
    shutil.copy(library, tmp_path / "usr/lib64")
    model = {"name": "NVIDIA H100 80GB HBM3", "memory": 81559}
    gpus = (FakeGpu(slot, values={"uuid": uuid, **model}) for slot, uuid in enumerate(UUIDS))
    fake = FakeNvml(tmp_path / "nvml", Fleet(tuple(gpus)))
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{BIN}:{os.defpath}",
        "DP_DRIVER_ROOT_CTR_PATH": str(tmp_path),
        "FAKE_NVML_FLEET": str(fake.path),
        "DP_RECOVERY_TIME": "1s",  # in place of five minutes
        "DP_DISCOVERY_INTERVAL": "1s",
    }

    def fall_off() -> None:
        fake.change(1, state="lost")
        fake.xid(1, 79)

    events = {
        "GPU 1 falls off the bus": fall_off,
        "GPU 1 is repaired": lambda: fake.change(1, state="ok"),
    }
    with running({**PLUGINS, "ubuntu:24.04": []}, **environment) as cluster:
        page = (EXAMPLES / "gpu/README.md").read_text()
        timed("NVIDIA GPUs on a cluster", follow(page, cluster.reader(), events=events))
