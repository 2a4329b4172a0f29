"""The driver's files, as they are found and as containers get them."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from containers.cdi_rules import faults
from deviceplugin_gpu import host
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import device_nodes, elf, nvidia_ctk
from deviceplugin_gpu.container.driver_files import DriverFiles
from deviceplugin_gpu.nvml.library import SONAME, Library
from deviceplugin_gpu.snapshot import Gpu
from gpu.driver_root import VERSION, DriverRoot, compile_c
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GpuRig, generate, uuid

MACHINE = os.uname().machine
SOURCES = {
    "libcuda.so": f"libcuda.so.{VERSION}",
    "libcuda.so.1": f"libcuda.so.{VERSION}",
    f"libnvidia-gpucomp.so.{VERSION}": f"libnvidia-gpucomp.so.{VERSION}",
    "libnvidia-ptxjitcompiler.so.1": f"libnvidia-ptxjitcompiler.so.{VERSION}",
    f"libnvidia-unnamed.so.{VERSION}": f"libnvidia-unnamed.so.{VERSION}",
}
"""The names that programs ask for, and the files."""
LIBRARIES = [*SOURCES]


@pytest.fixture
def root(tmp_path: Path, compiled: Path) -> DriverRoot:
    return DriverRoot(tmp_path / "driver-root", compiled)


def mounted(root: DriverRoot, version: str = VERSION, host: str = "/") -> dict[str, str]:
    """Return where what a container has is on the host, by its path in the container."""
    found = DriverFiles(root.path, Path(host)).find(version)
    assert all(mount.read_only for mount in found.edits.mounts)
    return {mount.container_path: mount.host_path for mount in found.edits.mounts}


def names_of(given: dict[str, str]) -> list[str]:
    return sorted(Path(path).name for path in given if path.startswith("/usr/lib64/"))


def test_libraries_are_where_both_kinds_of_linker_look_and_other_files_where_they_are(
    root: DriverRoot,
) -> None:
    root.install()
    firmware = f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
    same = ["/usr/bin/nvidia-smi", "/etc/OpenCL/vendors/nvidia.icd", firmware]
    assert {
        **{path: path for path in same},
        **{
            f"{folder}/{name}": f"/usr/lib64/{source}"
            for folder in ("/usr/lib64", f"/usr/lib/{MACHINE}-linux-gnu")
            for name, source in SOURCES.items()
        },
    } == mounted(root)


def test_what_comes_with_the_driver_and_has_a_version_of_its_own_comes_along(
    root: DriverRoot, compiled: Path
) -> None:
    root.install()
    own = compile_c("", compiled, "-shared", "-Wl,-soname,libnvidia-egl-gbm.so.1")
    (root.path / "usr/lib64/libnvidia-egl-gbm.so.1.1.2").write_bytes(own.read_bytes())
    (root.path / "usr/lib64/libnvidia-egl-gbm.so.1").symlink_to("libnvidia-egl-gbm.so.1.1.2")
    root.write("etc/vulkan/icd.d/nvidia_icd.json", "{}")
    root.write(f"usr/share/vulkan/icd.d/nvidia_icd.{MACHINE}.json", "{}")
    given = mounted(root)
    assert "/usr/lib64/libnvidia-egl-gbm.so.1.1.2" == given["/usr/lib64/libnvidia-egl-gbm.so.1"]
    assert "/etc/vulkan/icd.d/nvidia_icd.json" in given
    assert f"/usr/share/vulkan/icd.d/nvidia_icd.{MACHINE}.json" in given


def test_a_name_that_leads_elsewhere_is_not_that_of_a_library(
    root: DriverRoot, compiled: Path
) -> None:
    root.install()
    odd = compile_c("", compiled, "-shared", "-Wl,-soname,../../../etc/ld.so.preload")
    name = f"libnvidia-odd.so.{VERSION}"
    (root.path / "usr/lib64" / name).write_bytes(odd.read_bytes())
    assert f"/usr/lib64/{name}" in mounted(root)
    assert [] == [path for path in mounted(root) if ".." in path]


def test_sockets_of_daemons_come_along_while_they_are_there(root: DriverRoot) -> None:
    root.install()
    paths = ["run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket"]
    for path in paths:
        root.write(path, "stands for a socket")
    (root.path / "tmp/nvidia-mps").mkdir(parents=True)
    expected = {"/tmp/nvidia-mps", *(f"/{path}" for path in paths)}
    assert expected <= mounted(root).keys()
    (root.path / paths[0]).unlink()
    assert f"/{paths[0]}" not in mounted(root)


@pytest.mark.parametrize(
    "folder",
    [f"usr/lib/{MACHINE}-linux-gnu", f"usr/lib/{MACHINE}-linux-gnu/nvidia/current", "lib64"],
)
def test_libraries_are_found_where_distributions_have_them(root: DriverRoot, folder: str) -> None:
    root.install(libraries=folder)
    given = mounted(root, host="/run/nvidia/driver")
    assert LIBRARIES == names_of(given)
    assert f"/run/nvidia/driver/{folder}/libcuda.so.{VERSION}" == given["/usr/lib64/libcuda.so.1"]


def test_links_lead_where_they_lead_on_the_host(root: DriverRoot) -> None:
    root.install(libraries="nix/store/x-driver/lib")
    (root.path / "run").mkdir()
    (root.path / "run/opengl-driver").symlink_to("/nix/store/x-driver")
    given = mounted(root)
    assert LIBRARIES == names_of(given)
    assert f"/nix/store/x-driver/lib/libcuda.so.{VERSION}" == given["/usr/lib64/libcuda.so.1"]


def test_nvml_is_loaded_where_debians_links_lead_nowhere_from_here(
    root: DriverRoot, compiled: Path
) -> None:
    folder = root.path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    folder.mkdir(parents=True)
    some = compile_c("", compiled, "-shared", f"-Wl,-soname,{SONAME}")
    (folder / SONAME).write_bytes(some.read_bytes())
    (folder.parents[1] / SONAME).symlink_to("/etc/alternatives/nowhere--libnvidia-ml.so.1")
    library = Library(root.path)
    assert library.load() is not None
    assert str(folder / SONAME) == library.path


def test_only_libraries_of_the_driver_that_runs_are_taken(root: DriverRoot) -> None:
    root.install()
    root.install("570.86.10", "usr/lib")
    assert "/usr/lib/libcuda.so.570.86.10" in mounted(root, "570.86.10").values()
    assert {VERSION} == {
        path.partition(".so.")[2] for path in mounted(root).values() if ".so." in path
    }
    assert "/usr/lib64/libcuda.so.1" not in mounted(root, "999.1")
    assert {} == mounted(root, "")


def test_libraries_of_another_machine_and_what_is_no_library_are_left_out(
    root: DriverRoot,
) -> None:
    root.install()
    root.write(f"usr/lib64/libtext.so.{VERSION}", "INPUT(libother.so)")
    root.write(f"usr/lib64/libempty.so.{VERSION}", "")
    root.write(f"usr/lib64/libcut.so.{VERSION}", "\x7fELF\x02\x01 and no more")
    (root.path / f"usr/lib64/libgone.so.{VERSION}").symlink_to("nowhere")
    (root.path / f"usr/lib64/libround.so.{VERSION}").symlink_to(f"libround.so.{VERSION}")
    assert LIBRARIES == names_of(mounted(root))
    other = "aarch64" if MACHINE == "x86_64" else "x86_64"
    assert frozenset() == DriverFiles(root.path, Path("/"), other).find(VERSION).libraries


def test_what_may_not_be_looked_at_is_left_out(root: DriverRoot) -> None:
    """As in a directory of mode 0700: a name too long is an error for whoever runs this."""
    root.install()
    (root.path / "run").mkdir()
    (root.path / "run/nvidia-persistenced").symlink_to("x" * 300)
    (root.path / "run/nvidia-fabricmanager").symlink_to("y" * 200 + "/" + "z" * 300)
    (root.path / "usr/lib64/nvidia").symlink_to("x" * 300)
    assert LIBRARIES == names_of(mounted(root))


def test_the_name_of_a_library_is_read_from_it(tmp_path: Path, compiled: Path) -> None:
    def built(*flags: str) -> elf.SharedLibrary | None:
        return elf.read(compile_c("int x;", compiled, "-shared", *flags))

    alone = "-nostdlib"
    assert elf.SharedLibrary(MACHINE, "libx.so.7") == built("-Wl,-soname,libx.so.7", alone)
    assert elf.SharedLibrary(MACHINE, "") == built(alone)
    assert elf.SharedLibrary(MACHINE, "", ("libm.so.6",)) == built(
        alone, "-Wl,--no-as-needed", "-lm"
    )
    assert None is elf.read(compile_c("", compiled, "-c")), "an object file"
    whole = compile_c("int x;", compiled, "-shared", "-Wl,-soname,libx.so.7").read_bytes()
    for length in (*range(0, 512, 37), *range(512, len(whole), 1009)):
        (tmp_path / "cut").write_bytes(whole[:length])
        elf.read(tmp_path / "cut")
    for at in (*range(64), *range(64, 64 + 8 * 56, 7)):
        (tmp_path / "bad").write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        elf.read(tmp_path / "bad")


def test_a_link_never_leads_out_of_its_root(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/up").symlink_to("../../../../etc/passwd")
    (tmp_path / "a/full").symlink_to("/b/./c")
    (tmp_path / "round").symlink_to("round")
    assert "etc/passwd" == host.resolve(tmp_path, "a/up")
    assert "b/c" == host.resolve(tmp_path, "/a/full")
    assert "" == host.resolve(tmp_path, "a/../..")
    assert None is host.resolve(tmp_path, "round/x")


def test_a_gpu_has_its_nodes_of_the_kernels_own_interface(rig: GpuRig) -> None:
    gpu = Gpu(0, "GPU-0", pci="0000:3b:00.0")
    rig.has_card(gpu.pci)
    for name in ("card1", "renderD129", "controlD65", "card2", "card1-DP-1"):
        (rig.roots.sys / "bus/pci/devices" / gpu.pci / "drm" / name).mkdir(parents=True)
    rig.has_nodes("dri/card1", "dri/renderD129", "dri/controlD65")
    found = device_nodes.drm_nodes(gpu, rig.roots, Path("/run/nvidia/driver"))
    assert [
        ("/run/nvidia/driver/dev/dri/card1", "/dev/dri/card1"),
        ("/run/nvidia/driver/dev/dri/card1", "/dev/dri/by-path/pci-0000:3b:00.0-card"),
        ("/run/nvidia/driver/dev/dri/renderD129", "/dev/dri/renderD129"),
        ("/run/nvidia/driver/dev/dri/renderD129", "/dev/dri/by-path/pci-0000:3b:00.0-render"),
    ] == [(node.host_path, node.container_path) for node in found]
    assert [] == device_nodes.drm_nodes(Gpu(0, "GPU-0"), rig.roots, Path("/"))


# The hook.


def hook(root: DriverRoot, **given: Any) -> str:
    return nvidia_ctk.hook_program(GpuSettings(driver_root_ctr_path=root.path, **given))


def test_the_toolkits_hook_is_used_where_it_is(root: DriverRoot) -> None:
    assert "" == hook(root)
    root.write("usr/bin/nvidia-ctk", "")
    assert "/usr/bin/nvidia-ctk" == hook(root)
    root.write("usr/bin/nvidia-cdi-hook", "")
    assert "/usr/bin/nvidia-cdi-hook" == hook(root)
    assert "" == hook(root, cdi_disable_hooks=("all",))
    assert "" == hook(root, cdi_disable_hooks=("update-ldcache",))
    assert "" == hook(root, driver_root=Path("/run/nvidia/driver")), "it is not the host's root"
    given = Path("/usr/local/nvidia/toolkit/nvidia-ctk")
    assert str(given) == hook(root, nvidia_cdi_hook_path=given)


def test_the_hook_makes_the_linkers_cache() -> None:
    folders = ["--folder", "/usr/lib64", "--folder", "/b"]
    for program, words in {
        "/usr/bin/nvidia-cdi-hook": ["nvidia-cdi-hook", "update-ldcache"],
        "/usr/bin/nvidia-ctk": ["nvidia-ctk", "hook", "update-ldcache"],
    }.items():
        (made,) = nvidia_ctk.hook_edits(program, ["/usr/lib64", "/b"]).hooks
        assert ("createContainer", program, (*words, *folders)) == (
            made.name,
            made.path,
            made.args,
        )
    assert not nvidia_ctk.hook_edits("", ["/usr/lib64"])


# The plugin.


def specification(rig: GpuRig) -> dict[str, Any]:
    path = rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    made: dict[str, Any] = json.loads(path.read_text())
    assert [] == [*faults(made)]
    return made


def mounts(rig: GpuRig) -> list[str]:
    return [one["hostPath"] for one in specification(rig)["containerEdits"].get("mounts", ())]


@pytest.fixture
def node(rig: GpuRig, compiled: Path) -> tuple[GpuRig, DriverRoot]:
    rig.has(Fleet(gpus=Fleet.of(1).gpus, driver={"version": VERSION}))
    rig.has_nodes("nvidiactl", "nvidia0")
    return rig, DriverRoot(rig.driver_root, compiled)


def test_a_specification_follows_the_driver(node: tuple[GpuRig, DriverRoot]) -> None:
    rig, root = node
    root.install()
    root.write("usr/bin/nvidia-cdi-hook", "")
    list(rig.plugin(device_list_strategy="cdi-cri").discover())
    (made,) = specification(rig)["containerEdits"]["hooks"]
    assert "/usr/bin/nvidia-cdi-hook" == made["path"]
    plugin = rig.plugin(device_list_strategy="cdi-cri", cdi_disable_hooks=("all",))
    list(plugin.discover())
    assert f"/usr/lib64/libcuda.so.{VERSION}" in mounts(rig)
    assert "hooks" not in specification(rig)["containerEdits"]
    root.remove()
    root.install("581.10")
    rig.has(Fleet(gpus=Fleet.of(1).gpus, driver={"version": "581.10"}))
    list(rig.plugin(device_list_strategy="cdi-cri").discover())
    assert "/usr/lib64/libcuda.so.581.10" in mounts(rig)
    assert f"/usr/lib64/libcuda.so.{VERSION}" not in mounts(rig)


def test_a_driver_that_does_not_tell_its_version_now_is_the_one_of_before(
    node: tuple[GpuRig, DriverRoot],
) -> None:
    """Or pods that start meanwhile have no driver."""
    rig, root = node
    root.install()
    plugin = rig.plugin(device_list_strategy="cdi-cri")
    list(plugin.discover())
    before = mounts(rig)
    rig.fake.fail("nvmlSystemGetDriverVersion", 999)
    list(plugin.discover())
    assert before == mounts(rig) != []


def test_a_toolkits_index_is_taken_only_where_nobody_else_brings_the_driver(
    node: tuple[GpuRig, DriverRoot], caplog: pytest.LogCaptureFixture
) -> None:
    """After a boot without another GPU, the same index would be another one in its file."""
    rig, root = node
    generate(rig.cdi_dir / "nvidia.json", "0")
    plugin = rig.plugin(device_list_strategy="cdi-cri")

    def names() -> list[str]:
        return [name for device in plugin.discover() for name in device.cdi_names]

    assert ["nvidia.com/gpu=0"] == names()
    assert [] == [one for one in caplog.records if "libraries" in one.message]
    root.install()
    assert [f"k8s.device-plugin.nvidia.com/gpu={uuid(0)}"] == names()
    assert [] == [one for one in caplog.records if "stale" in one.message]


@pytest.mark.parametrize(
    ("has_nodes", "given", "expected"),
    [
        (True, {}, "/run/nvidia/driver/dev/nvidia0"),
        (False, {}, "/dev/nvidia0"),
        (False, {"dev_root": Path("/other")}, "/other/dev/nvidia0"),
    ],
)
def test_device_nodes_are_named_where_the_driver_has_made_them(
    node: tuple[GpuRig, DriverRoot], given: dict[str, Any], expected: str, *, has_nodes: bool
) -> None:
    """A pod that is given a node which is not there is not started."""
    rig, root = node
    root.install()
    if has_nodes:
        root.write("dev/nvidiactl", "")
    driver = Path("/run/nvidia/driver")
    list(rig.plugin(device_list_strategy="cdi-cri", driver_root=driver, **given).discover())
    (device,) = specification(rig)["devices"]
    (made,) = device["containerEdits"]["deviceNodes"]
    assert expected == made.get("hostPath", made["path"])


def test_mig_devices_have_no_nodes_that_render(node: tuple[GpuRig, DriverRoot]) -> None:
    rig, root = node
    root.install()
    rig.has(Fleet.of(1, migs=(FakeMig(1),)))
    pci = rig.fake.fleet.gpus[0].pci
    (rig.roots.sys / "bus/pci/devices" / pci / "drm/renderD128").mkdir(parents=True)
    rig.has_nodes("dri/renderD128")

    def paths(strategy: str) -> list[str]:
        plugin = rig.plugin(device_list_strategy="cdi-cri", mig_strategy=strategy)
        assert 1 == len(list(plugin.discover()))
        (device,) = specification(rig)["devices"]
        return [one["path"] for one in device["containerEdits"]["deviceNodes"]]

    assert "/dev/dri/renderD128" in paths("none")
    assert "/dev/dri/renderD128" not in paths("single")


PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/cdi.md"
USR = {"usr": "usr"}
"""What the component gpu-cdi mounts below the driver's root."""


@pytest.mark.parametrize(
    ("system", "libraries", "mounts"),
    [
        ("Debian", f"usr/lib/{MACHINE}-linux-gnu/nvidia/current", USR),
        ("Ubuntu", f"usr/lib/{MACHINE}-linux-gnu", USR),
        ("Red Hat", "usr/lib64", USR),
        ("Bottlerocket", "usr/lib/nvidia/tesla", USR),
        ("Talos", "usr/local/glibc/usr/lib", USR),
        ("GKE", "home/kubernetes/bin/nvidia/lib64", {"home/kubernetes/bin/nvidia": ""}),
        ("GPU operator", "run/nvidia/driver/usr/lib64", {"run/nvidia/driver": ""}),
    ],
)
def test_each_recipe_of_the_page_finds_nvml_and_cuda(
    rig: GpuRig, compiled: Path, system: str, libraries: str, mounts: dict[str, str]
) -> None:
    assert system in PAGE.read_text()
    node = DriverRoot(rig.path / "node", compiled)
    node.install(libraries=libraries)
    (node.path / libraries / SONAME).write_bytes(rig.library.read_bytes())
    rig.driver_root = rig.path / "mounted"
    for source, target in mounts.items():
        shutil.copytree(node.path / source, rig.driver_root / target, symlinks=True)
    nvml = Library(rig.driver_root)
    assert nvml.load() is not None
    assert nvml.path.startswith(str(rig.driver_root))
    (root,) = (Path("/", source) if not target else Path("/") for source, target in mounts.items())
    found = DriverFiles(rig.driver_root, root).find(VERSION).edits.mounts
    given = {one.container_path: one.host_path for one in found}
    assert LIBRARIES == names_of(given)
    assert f"/{libraries}/libcuda.so.{VERSION}" == given["/usr/lib64/libcuda.so.1"]


def test_the_recipe_for_nixos_finds_nvml_and_uses_the_specification_of_the_node(
    rig: GpuRig,
) -> None:
    assert "`/run/opengl-driver` at `/driver-root`" in PAGE.read_text()
    store = rig.path / "nix/store/x-driver/lib"
    store.mkdir(parents=True)
    (store / SONAME).symlink_to(rig.library)
    rig.driver_root = rig.path / "mounted"
    (rig.driver_root / "lib").mkdir(parents=True)
    (rig.driver_root / "lib" / SONAME).symlink_to(store / SONAME)
    rig.has(Fleet.of(1))
    generate(rig.cdi_dir / "nvidia-container-toolkit.json", uuid(0))
    (found,) = rig.plugin(device_list_strategy="cdi-cri").discover()
    assert (f"nvidia.com/gpu={uuid(0)}",) == tuple(found.cdi_names)
    assert found.health
