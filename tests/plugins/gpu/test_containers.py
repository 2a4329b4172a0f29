"""CUDA programs in containers that have a GPU by the plugin's own CDI specification.

The driver is a fake one, and so are the device nodes. The linker of the image as Red Hat's are is
an imitation: `containers.linker_images`.
"""

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers import containerd, linker_images
from containers.cdi_bundle import Bundle, Edits, edits_of
from containers.linker_images import Image
from deviceplugin_gpu.container.driver_files import DriverFiles
from deviceplugin_gpu.container.nvidia_ctk import Toolkit, hook_edits
from deviceplugin_gpu.snapshot import Gpu
from gpu.driver_root import VERSION, DriverRoot
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, uuid

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
@pytest.mark.parametrize(("user", "read_only"), [(0, False), (NOBODY, True), (NOBODY, False)])
def test_a_cuda_program_runs_with_the_plugins_specification(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits], user: int, read_only: bool
) -> None:
    done = bundle(make).run(given, "program", *LIBRARIES, user=user, read_only=read_only)
    assert (FOUND, "") == (done.stdout, done.stderr)


@BOTH
def test_it_runs_beside_what_the_image_says_of_its_own_libraries(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits]
) -> None:
    box = bundle(make)
    done = box.run(given, "program", *LIBRARIES, LD_LIBRARY_PATH="/opt/own")
    assert FOUND == done.stdout
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


@BOTH
def test_without_the_specification_it_does_not_run(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits]
) -> None:
    assert given
    done = bundle(make).run([], "program")
    assert "libcuda.so.1: cannot open shared object file" in done.stderr


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


@BOTH
def test_programs_and_device_nodes_are_there(
    make: Any, bundle: Callable[[Any], Bundle], given: list[Edits]
) -> None:
    box = bundle(make)
    assert "NVIDIA-SMI\n" == box.run(given, "nvidia-smi", user=NOBODY, read_only=True).stdout
    nodes = box.run(given, "sh", "-c", "cat /dev/nvidiactl /dev/nvidia0 && ls /dev", user=NOBODY)
    assert {"nvidiactl", "nvidia0"} <= {*nodes.stdout.split()}


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
