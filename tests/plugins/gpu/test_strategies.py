"""What containers are told of their devices."""

import itertools
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import deviceplugin as dp
from containers import containerd, linker_images
from containers import containerd as daemon
from containers.cdi_bundle import Bundle, Edits, edits_of
from containers.containerd import Containerd
from containers.cri import read_log
from containers.linker_images import Image
from containers.pod_config import Node, PodConfig
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.setting_kinds import STRATEGIES, Strategies
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import device_nodes
from deviceplugin_gpu.container.allocation import allocation
from deviceplugin_gpu.container.device_nodes import Nodes
from deviceplugin_gpu.container.driver_files import DriverFiles
from deviceplugin_gpu.container.nvidia_ctk import Toolkit, hook_edits
from deviceplugin_gpu.doctor.container_runtime import NodeKind, table
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.snapshot import Gpu, Mig
from deviceplugin_testing.simulator import RunOptions
from gpu import nvidia_runtime
from gpu.driver_root import VERSION, DriverRoot
from gpu.fake_nvml import FakeNvml, Fleet
from gpu.rig import GpuRig, uuid
from patience import eventually

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTED = "/var/run/nvidia-container-devices"
CDI = {"GPU-a": "x.io/gpu=a", "GPU-b": "x.io/gpu=b"}
PAIR = [Unit(GPU, Gpu(10, "GPU-a", minor=10)), Unit(GPU, Gpu(2, "GPU-b", minor=2))]


def told(*names: str, units: list[Unit] = PAIR, **given: Any) -> dp.Allocation:
    strategies = Strategies.parse(list(names) or "envvar")
    settings = GpuSettings(device_list_strategy=strategies, **given)
    return allocation(units, settings, cdi_names=CDI, cdi_others=["x.io/extra=all"])


SHARED = [Unit(GPU, Gpu(0, "GPU-a"), replica=number, replicas=3) for number in (2, 0)]
PART = [Unit("nvidia.com/mig-1g.5gb", Gpu(3, "GPU-a"), Mig("MIG-a", 1, 7, 0))]


@pytest.mark.parametrize(
    ("units", "by_uuid", "by_index"),
    [(PAIR, "GPU-b,GPU-a", "2,10"), (SHARED, "GPU-a", "0"), (PART, "MIG-a", "3:1")],
)
def test_a_variable_names_devices_once_in_the_order_of_gpus(
    units: list[Unit], by_uuid: str, by_index: str
) -> None:
    assert dp.Allocation(envs={VISIBLE: by_uuid}) == told("envvar", units=units)
    assert {VISIBLE: by_index} == told(units=units, device_id_strategy="index").envs


def test_mounts_name_devices() -> None:
    mounts = [dp.Mount("/dev/null", f"{MOUNTED}/{name}") for name in ("GPU-b", "GPU-a")]
    expected = dp.Allocation(envs={VISIBLE: MOUNTED}, mounts=mounts)
    assert expected == told("volume-mounts")
    assert expected == told("envvar", "volume-mounts")


def test_the_runtime_is_told_of_cdi_devices_by_name_or_by_an_annotation() -> None:
    names = ["x.io/gpu=b", "x.io/gpu=a", "x.io/extra=all"]
    assert dp.Allocation(cdi_names=names) == told("cdi-cri")
    prefix = "cdi.example.com/"
    found = told("cdi-annotations", cdi_annotation_prefix=prefix)
    (key,) = found.annotations
    assert dp.Allocation(annotations={key: ",".join(names)}) == found
    assert key.startswith(f"{prefix}nvidia-device-plugin_")
    assert len(key.removeprefix(prefix)) <= 63
    one, other = (told("cdi-annotations", units=[unit]).annotations for unit in PAIR)
    assert one.keys() != other.keys()


def test_imex_channels_and_more_libraries_are_told_of_in_each_way() -> None:
    given: dict[str, Any] = {"imex_channel_ids": (0,)}
    assert "0" == told("envvar", **given).envs["NVIDIA_IMEX_CHANNELS"]
    mounts = [mount.container_path for mount in told("volume-mounts", **given).mounts]
    assert f"{MOUNTED}/imex/0" in mounts
    given = {"gdrcopy_enabled": True, "gds_enabled": True, "mofed_enabled": True}
    expected = {f"NVIDIA_{mode}": "enabled" for mode in ("GDRCOPY", "GDS", "MOFED")}
    assert expected == told("cdi-cri", **given).envs


# Device nodes.


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    roots = Roots(dev=tmp_path / "dev", proc=tmp_path / "proc")
    roots.dev.mkdir()
    for name in ("nvidia-uvm", "nvidiactl"):
        (roots.dev / name).touch()
    folder = roots.proc / "driver/nvidia-caps"
    folder.mkdir(parents=True)
    lines = ["config 1", "gpu0/gi7/access 121", "gpu0/gi7/ci0/access 122", "gpu1/gi7/access 200"]
    (folder / "mig-minors").write_text("\n".join(lines))
    return device_nodes.find(roots)


def paths(unit: Unit, nodes: Nodes, root: str = "/") -> list[tuple[str, str]]:
    return [(node.host_path, node.container_path) for node in nodes.of(unit, Path(root))]


def test_a_gpu_needs_the_control_nodes_that_exist_and_its_own(nodes: Nodes) -> None:
    expected = [
        (f"/run/nvidia/dev/{name}", f"/dev/{name}")
        for name in ("nvidiactl", "nvidia-uvm", "nvidia3")
    ]
    assert expected == paths(Unit(GPU, Gpu(0, "GPU-a", minor=3)), nodes, "/run/nvidia")
    assert [("/dev/dxg", "/dev/dxg")] == paths(Unit(GPU, Gpu(0, "all")), Nodes((), {})), "of WSL"


def test_a_mig_device_needs_its_capabilities_if_they_are_known(nodes: Nodes) -> None:
    unit = Unit(GPU, Gpu(4, "GPU-a", minor=0), Mig("MIG-a", 0, gpu_instance=7, compute_instance=0))
    expected = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap121", "/dev/nvidia-caps/nvidia-cap122"]
    assert expected == [path for _, path in paths(unit, nodes)][2:]
    assert [("/dev/nvidia0", "/dev/nvidia0")] == paths(unit, Nodes((), {}))


def test_device_nodes_are_given_once_and_not_with_cdi_alone() -> None:
    nodes = {
        unit.id: [dp.DeviceNode("/dev/nvidiactl"), dp.DeviceNode(f"/dev/{unit.uuid}")]
        for unit in PAIR
    }
    found = allocation(PAIR, GpuSettings(), nodes=nodes)
    expected = ["/dev/nvidiactl", "/dev/GPU-b", "/dev/GPU-a"]
    assert expected == [node.host_path for node in found.nodes]
    cdi = GpuSettings(device_list_strategy=Strategies(("cdi-cri",)))
    assert () == allocation(PAIR, cdi, nodes=nodes).nodes


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
    assert table(kind(driver, nvidia=nvidia))[strategy].runs == ("linked: CUDA 13007" in said)
    has_nodes = {"nvidiactl", "nvidia0"} <= {*said.split()}
    assert has_nodes == (nvidia or strategy.startswith("cdi"))


def row(strategy: str) -> str:
    cells = [
        table(kind(driver, nvidia=nvidia))[strategy].runs
        for nvidia in (True, False)
        for driver in DRIVERS
    ]
    return f"| `{strategy}` | {' | '.join('runs' if one else 'no' for one in cells)} |"


def test_the_table_on_the_page_is_the_one_that_is_tried() -> None:
    page = PAGE.read_text()
    assert [] == [row(strategy) for strategy in STRATEGIES if row(strategy) not in page]


NOBODY = 65534
LIBRARIES = ("libcuda.so.1", "libcuda.so", "libnvidia-ptxjitcompiler.so.1")
FOUND = "".join(["linked: CUDA 13007\n", *(f"{name}: found\n" for name in LIBRARIES)])
BOTH = pytest.mark.parametrize("make", [linker_images.debian, linker_images.red_hat])


@pytest.fixture
def given(rig: GpuRig, compiled: Path) -> list[Edits]:
    """Return what a container gets of the plugin's specification, on a node with a driver."""
    if missing := containerd.why_not() or linker_images.why_not():
        pytest.skip(missing)
    rig.has(Fleet(gpus=Fleet.of(1).gpus, driver={"version": VERSION}))
    for name in ("nvidiactl", "nvidia0"):
        os.mknod(rig.roots.dev / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (rig.roots.dev / name).chmod(0o666)
    DriverRoot(rig.driver_root, compiled).install()
    list(
        rig.plugin(
            device_list_strategy="cdi-cri", driver_root=rig.driver_root, dev_root=rig.path
        ).discover()
    )
    path = rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    return edits_of(json.loads(path.read_text()), uuid(0))


@pytest.fixture
def bundle(tmp_path: Path, rig: GpuRig, compiled: Path) -> Callable[[Any], Bundle]:
    def made(make: Callable[[Path], Image]) -> Bundle:
        program = DriverRoot(rig.path / "unused", compiled).install().program
        (tmp_path / "bundle").mkdir()
        return Bundle(tmp_path / "bundle", make(program))

    return made


@BOTH
def test_a_cuda_program_runs_with_the_plugins_specification(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits]
) -> None:
    box = bundle(make)
    for user, read_only in ((NOBODY, True), (NOBODY, False), (0, False)):
        done = box.run(given, "program", *LIBRARIES, user=user, read_only=read_only)
        assert (FOUND, "") == (done.stdout, done.stderr)
    assert "NVIDIA-SMI\n" == box.run(given, "nvidia-smi", user=NOBODY, read_only=True).stdout
    nodes = box.run(given, "sh", "-c", "cat /dev/nvidiactl /dev/nvidia0 && ls /dev", user=NOBODY)
    assert {"nvidiactl", "nvidia0"} <= {*nodes.stdout.split()}
    # What the image says of its own libraries stays.
    assert FOUND == box.run(given, "program", *LIBRARIES, LD_LIBRARY_PATH="/opt/own").stdout
    said = box.run(given, "env", LD_LIBRARY_PATH="/opt/own").stdout
    assert {"LD_LIBRARY_PATH=/opt/own", "NVIDIA_VISIBLE_DEVICES=void"} <= {*said.splitlines()}


@BOTH
def test_a_cache_that_the_image_has_hides_nothing(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits]
) -> None:
    box = bundle(make)
    (box.root / "etc").mkdir(exist_ok=True)
    subprocess.run(["ldconfig", "-r", box.root], check=True)
    assert (box.root / "etc/ld.so.cache").exists()
    assert FOUND == box.run(given, "program", *LIBRARIES, user=NOBODY, read_only=True).stdout


@pytest.mark.parametrize(
    ("make", "elsewhere"),
    [
        (linker_images.debian, "/usr/lib64/"),
        (linker_images.red_hat, f"/usr/lib/{os.uname().machine}-linux-gnu/"),
    ],
)
def test_each_kind_of_image_needs_the_libraries_in_its_own_directory(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits], elsewhere: str
) -> None:
    """So the two images are as different as they should be."""
    mounts = [one for one in given[0]["mounts"] if one["containerPath"].startswith(elsewhere)]
    done = bundle(make).run([{**given[0], "mounts": mounts}], "program")
    assert "libcuda.so.1: cannot open shared object file" in done.stderr


def test_the_hook_is_called_as_the_toolkits_is(
    bundle: Callable[[Any], Bundle], given: list[Edits], tmp_path: Path
) -> None:
    hook = tmp_path / "nvidia-cdi-hook"
    hook.write_text(f'#!/bin/sh\nread state; echo "$0 $@" > {tmp_path}/called\n')
    hook.chmod(0o755)
    called = hook_edits(str(hook), ["/usr/lib64", "/b"]).document()
    done = bundle(linker_images.debian).run([*given, called], "program")
    assert "linked: CUDA 13007\n" == done.stdout
    words = (tmp_path / "called").read_text().split()
    assert ["update-ldcache", "--folder", "/usr/lib64", "--folder", "/b"] == words[1:]


@BOTH
@pytest.mark.parametrize(("user", "read_only"), [(0, False), (NOBODY, True)])
def test_nvidias_own_hook_puts_the_libraries_into_the_cache(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits], user: int, read_only: bool
) -> None:
    program = os.environ.get("NVIDIA_CDI_HOOK")
    if not program:
        pytest.skip("NVIDIA_CDI_HOOK is not set: the path of nvidia-cdi-hook")
    folders = ["/usr/lib64", f"/usr/lib/{os.uname().machine}-linux-gnu"]
    box = bundle(make)
    (box.root / "etc").mkdir()
    called = hook_edits(program, folders).document()
    shown = "program && busybox strings /etc/ld.so.cache"
    done = box.run([*given, called], "sh", "-c", shown, user=user, read_only=read_only)
    assert "linked: CUDA 13007" in done.stdout, done.stderr
    assert "/libcuda.so.1\n" in done.stdout


def test_nvidias_own_specification_is_understood_and_has_no_file_that_ours_lacks(
    given: list[Edits], rig: GpuRig, nvml_library: Path
) -> None:
    """NVIDIA's toolkit generates one on the same node."""
    program = os.environ.get("NVIDIA_CTK")
    if not program:
        pytest.skip("NVIDIA_CTK is not set: the path of nvidia-ctk")
    folder = rig.driver_root / "usr/lib64"
    (folder / nvml_library.name).unlink()
    (folder / f"libnvidia-ml.so.{VERSION}").write_bytes(nvml_library.read_bytes())
    (folder / nvml_library.name).symlink_to(f"libnvidia-ml.so.{VERSION}")
    path = rig.cdi_dir / "nvidia.json"
    roots = [f"--driver-root={rig.driver_root}", f"--dev-root={rig.path}"]
    words = [program, "cdi", "generate", "--mode=nvml", *roots, f"--output={path}"]
    subprocess.run(words, env=rig.fake.environment(nvml_library), check=True)
    made = Toolkit([rig.cdi_dir]).find()
    nodes = ["/dev/nvidiactl", "/dev/nvidia0"]
    gpu = Gpu(0, uuid(0))
    assert f"nvidia.com/gpu={uuid(0)}" == made.match(gpu, driver=VERSION, nodes=nodes).name
    assert "" == made.match(gpu, driver="999.1").name
    assert "" == made.match(Gpu(0, "GPU-other"), driver=VERSION).name
    theirs = json.loads(path.read_text())["containerEdits"]["mounts"]
    ours = DriverFiles(rig.driver_root, rig.driver_root).find(VERSION).edits.mounts
    assert {one["hostPath"] for one in theirs} <= {one.host_path for one in ours}
    assert given
