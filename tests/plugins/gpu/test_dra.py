"""GPUs through DRA: a container gets the same as by the device-plugin protocol."""

import shutil
import tempfile
from pathlib import Path

from gpu.fake_nvml import Fleet
from gpu.rig import GPU, GpuRig
from served.both_protocols import by_both


def test_a_container_gets_the_same_gpus_through_either_protocol(rig: GpuRig) -> None:
    rig.has(Fleet.of(2))
    root = Path(tempfile.mkdtemp(prefix="dp"))  # short, for sockets
    try:
        expected, found = by_both(root, rig.plugin)
    finally:
        shutil.rmtree(root)
    assert [1, 2] == sorted(len(ids) for resource, ids in found if resource == GPU)
    assert expected == found
