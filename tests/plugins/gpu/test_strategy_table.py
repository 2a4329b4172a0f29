"""Each device list strategy on each kind of node: a real container is started for each.

What stands in: the driver, the device nodes, NVIDIA's container runtime (`gpu.nvidia_runtime`) and
the specification of NVIDIA's toolkit, which has no hooks here. containerd and runc are real. With
``NVIDIA_RUNTIME=path/to/nvidia-container-runtime``, and nvidia-ctk beside it, that one is called.
"""

import itertools
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from containers import containerd as daemon
from containers import linker_images
from containers.containerd import Containerd
from containers.cri import read_log
from containers.pod_config import Node, PodConfig
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_gpu.configuration.device_list_strategy import STRATEGIES
from deviceplugin_gpu.container.driver_files import DriverFiles
from deviceplugin_gpu.doctor.container_runtime import NodeKind, prospect
from deviceplugin_testing.simulator import RunOptions
from gpu import nvidia_runtime
from gpu.driver_root import VERSION, DriverRoot
from gpu.fake_nvml import FakeNvml, Fleet
from gpu.rig import GpuRig, uuid
from patience import eventually

PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/cdi.md"
IMAGE = "docker.io/library/cuda:1"
DRIVERS = ["toolkit", "libraries", "nobody"]
"""Who could bring the driver by CDI: the toolkit's specification, the plugin's, or nobody."""
CELLS = [*itertools.product(STRATEGIES, [True, False], DRIVERS)]


def kind(driver: str, *, nvidia: bool) -> NodeKind:
    return NodeKind(nvidia, cdi=True, toolkit=driver == "toolkit", libraries=driver == "libraries")


@dataclass
class Host:
    """A node's driver and device nodes, and a containerd with each runtime."""

    driver: DriverRoot
    folder: Path
    running: dict[bool, Containerd]


@pytest.fixture(scope="module")
def host(compiled: Path, nvml_library: Path) -> Iterator[Host]:
    if missing := daemon.why_not() or linker_images.why_not():
        pytest.skip(missing)
    with TemporaryDirectory(prefix="gpu-node-") as name:
        folder = Path(name)
        driver = DriverRoot(folder / "driver", compiled)
        program = driver.install().program
        (folder / "dev").mkdir()
        for node in ("nvidiactl", "nvidia0"):
            os.mknod(folder / "dev" / node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        archive = folder / "cuda.tar"
        linker_images.debian(program).write(archive, IMAGE)
        runtime = nvidias_runtime(folder, driver, nvml_library)
        (folder / "plain").mkdir()
        (folder / "nvidia").mkdir()
        with (
            Containerd(folder / "plain") as plain,
            Containerd(folder / "nvidia", runtime) as nvidia,
        ):
            for one in (plain, nvidia):
                one.load(archive, IMAGE)
            yield Host(driver, folder, {True: nvidia, False: plain})


def nvidias_runtime(folder: Path, driver: DriverRoot, nvml: Path) -> Path:
    """Return the path of a program that stands for NVIDIA's runtime, or calls it."""
    path = folder / "nvidia-container-runtime"
    real = os.environ.get("NVIDIA_RUNTIME")
    if not real:
        return nvidia_runtime.install(path, {uuid(0): edits(driver)})
    for name in ("nvidiactl", "nvidia0"):
        (driver.path / "dev").mkdir(exist_ok=True)
        os.mknod(driver.path / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    library = driver.path / "usr/lib" / f"libnvidia-ml.so.{VERSION}"
    library.parent.mkdir(exist_ok=True)
    library.write_bytes(nvml.read_bytes())
    library.with_name(nvml.name).symlink_to(library.name)
    fake = FakeNvml(folder / "nvml", Fleet(gpus=Fleet.of(1).gpus, driver={"version": VERSION}))
    own = fake.environment(nvml).items() - os.environ.items()
    return nvidia_runtime.install_real(path, Path(real), driver.path, dict(own))


def edits(driver: DriverRoot) -> list[dict[str, object]]:
    """Return what a GPU brings, wherever it comes from."""
    nodes = [
        {
            "path": f"/dev/{name}",
            "hostPath": f"{driver.path.parent}/dev/{name}",
            "permissions": "rw",
        }
        for name in ("nvidiactl", "nvidia0")
    ]
    files = DriverFiles(driver.path, driver.path).find(VERSION).edits.document()
    return [{**files, "deviceNodes": nodes}]


def allocated(rig: GpuRig, host: Host, strategy: str, driver: str, cdi: Path) -> RunOptions:
    """Return what the plugin answers on a node of a kind."""
    for path in cdi.iterdir():
        path.unlink()
    rig.has(Fleet(gpus=Fleet.of(1).gpus, driver={"version": VERSION}))
    rig.has_nodes("nvidiactl", "nvidia0")
    rig.cdi_dir = cdi
    if driver == "toolkit":
        (device,) = edits(host.driver)
        document = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": uuid(0), "containerEdits": device}],
            "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
        }
        (cdi / "nvidia.json").write_text(json.dumps(document))
    # NVML is the rig's own in each case: only the libraries that the plugin looks for differ.
    visible = host.driver.path if driver == "libraries" else rig.driver_root
    plugin = rig.plugin(
        device_list_strategy=strategy,
        driver_root=host.driver.path,
        driver_root_ctr_path=visible,
        dev_root=host.folder,
    )
    found = plugin.allocate(list(plugin.discover()))
    return RunOptions(
        dict(found.envs),
        [
            pb.Mount(host_path=one.host_path, container_path=one.container_path, read_only=True)
            for one in found.mounts
        ],
        (),
        dict(found.annotations),
        tuple(found.cdi_names),
    )


def printed(containerd: Containerd, folder: Path, given: RunOptions) -> str:
    """Return what a CUDA program says in a pod that gets what is given."""
    own = {"name": "main", "image": IMAGE, "command": ["sh", "-c", "program 2>&1; ls /dev"]}
    pod = {"metadata": {"name": "cuda"}, "spec": {"containers": [own]}}
    config = PodConfig(pod, "cuda", Node("node-1", containerd.cgroup, folder / "pods"))
    sandbox = containerd.runtime.run_pod(config.sandbox)
    try:
        made = containerd.runtime.start(sandbox, config.sandbox, config.container(own, given))
        eventually(lambda: containerd.runtime.has_ended(made))
        return read_log(config.log("main"))
    finally:
        containerd.runtime.remove_pod(sandbox)


@pytest.mark.parametrize(("strategy", "nvidia", "driver"), CELLS)
def test_a_cuda_pod_runs_where_the_table_says_so(
    rig: GpuRig, host: Host, tmp_path: Path, strategy: str, driver: str, *, nvidia: bool
) -> None:
    if strategy.startswith("cdi") and (missing := daemon.why_no_cdi()):
        pytest.skip(missing)
    containerd = host.running[nvidia]
    said = printed(containerd, tmp_path, allocated(rig, host, strategy, driver, containerd.cdi))
    assert prospect([strategy], kind(driver, nvidia=nvidia)).runs == ("linked: CUDA 13007" in said)
    has_nodes = {"nvidiactl", "nvidia0"} <= {*said.split()}
    assert has_nodes == (nvidia or strategy.startswith("cdi"))


def row(strategy: str) -> str:
    cells = [
        prospect([strategy], kind(driver, nvidia=nvidia)).runs
        for nvidia in (True, False)
        for driver in DRIVERS
    ]
    return f"| `{strategy}` | {' | '.join('runs' if one else 'no' for one in cells)} |"


def test_the_table_on_the_page_is_the_one_that_is_tried() -> None:
    page = PAGE.read_text()
    assert [] == [row(strategy) for strategy in STRATEGIES if row(strategy) not in page]
