"""Where containers would get a GPU without the driver, it is unhealthy, and says why."""

import json
import logging
import shutil
from collections.abc import Callable

import pytest

from deviceplugin_gpu.nvml.library import UPGRADED
from deviceplugin_gpu.plugin import GpuPlugin
from gpu.driver_root import VERSION, DriverRoot
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GpuRig, devices, generate, unhealthy, uuid

NEWER = "580.105.08"
OLDER = "570.86.10"
STRATEGIES = ["cdi-cri", "cdi-annotations", "cdi-annotations,cdi-cri", "envvar,cdi-cri"]
Lose = Callable[[DriverRoot], object]


@pytest.fixture
def node(rig: GpuRig) -> GpuRig:
    rig.has_nodes("nvidiactl", "nvidia0")
    return rig.has(Fleet.of(1))


def mounted(rig: GpuRig) -> set[str]:
    """Return the files of the host that our specification mounts."""
    path = rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    edits = json.loads(path.read_text())["containerEdits"]
    return {one["hostPath"] for one in edits["mounts"]}


def upgrade(root: DriverRoot, version: str = NEWER) -> None:
    """Replace the libraries on the disk, as apt does. The module stays the old one."""
    root.remove()
    root.install(version)


def lose(name: str) -> Lose:
    return lambda root: (root.path / "usr/lib64" / name).unlink()


def vanish(root: DriverRoot) -> None:
    shutil.rmtree(root.path)


LOSSES: dict[str, tuple[Lose, str]] = {
    "an upgrade": (upgrade, f"only that of {NEWER}: {UPGRADED}"),
    "an older one": (lambda root: upgrade(root, OLDER), f"only that of {OLDER}: mount the root of"),
    "no root": (vanish, "is not below"),
    "no libcuda": (lose(f"libcuda.so.{VERSION}"), f"libcuda.so.1 of driver {VERSION} is not below"),
    "part of it": (
        lose(f"libnvidia-gpucomp.so.{VERSION}"),
        f"libcuda.so.1 needs libnvidia-gpucomp.so.{VERSION}, not below",
    ),
}


@pytest.mark.parametrize(
    ("strategy", "loss"),
    [*((STRATEGIES[0], loss) for loss in LOSSES), *((one, "no root") for one in STRATEGIES[1:])],
)
def test_a_specification_that_loses_its_libraries_makes_its_devices_unhealthy(
    node: GpuRig, driver_root: DriverRoot, strategy: str, loss: str
) -> None:
    plugin = node.plugin(device_list_strategy=strategy)
    assert {} == unhealthy(devices(plugin))
    before = mounted(node)
    lost, why = LOSSES[loss]
    lost(driver_root)
    node.fake.fail("init", 18)
    for _ in range(2):
        (reason,) = unhealthy(devices(plugin)).values()
        assert why in reason
        assert before == mounted(node), "a container that starts again must not start without them"
    node.fake.mend()
    driver_root.install()
    assert {} == unhealthy(devices(plugin))
    assert before == mounted(node)


@pytest.mark.parametrize("strategy", STRATEGIES[2:])
def test_what_was_lost_is_still_known_after_a_reload(
    node: GpuRig, driver_root: DriverRoot, strategy: str
) -> None:
    driver = node.driver()

    def made(**given: object) -> GpuPlugin:
        settings = node.settings(device_list_strategy=strategy, **given)
        return GpuPlugin(settings, driver=driver, roots=node.roots)

    assert {} == unhealthy(devices(made()))
    before = mounted(node)
    upgrade(driver_root)
    (reason,) = unhealthy(devices(made(device_id_strategy="index"))).values()
    assert UPGRADED in reason
    assert before == mounted(node)


@pytest.mark.parametrize("mig_strategy", ["single", "mixed"])
def test_partitions_without_the_driver_are_unhealthy(
    node: GpuRig, driver_root: DriverRoot, mig_strategy: str
) -> None:
    node.has(Fleet.of(1, migs=(FakeMig(1), FakeMig(2))))
    plugin = node.plugin(device_list_strategy="cdi-cri", mig_strategy=mig_strategy)
    assert {} == unhealthy(devices(plugin))
    upgrade(driver_root)
    reasons = unhealthy(devices(plugin))
    assert {FakeMig(1).uuid(0), FakeMig(2).uuid(0)} == reasons.keys()
    assert all(UPGRADED in one for one in reasons.values())


def test_where_there_was_never_a_driver_for_containers_devices_are_unhealthy(
    node: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as where the driver's root is not mounted."""
    plugin = node.plugin(device_list_strategy="cdi-cri")
    (reason,) = [unhealthy(devices(plugin))[uuid(0)] for _ in range(3)][1:2]
    assert f"libcuda.so.1 of driver {VERSION} is not below {node.driver_root}: mount" in reason
    assert [] == list(node.cdi_dir.glob("*")), "a runtime refuses a name that is in no file"
    assert [reason] == told(caplog)


def test_where_another_strategy_can_bring_the_driver_it_is_said_once(
    node: GpuRig, driver_root: DriverRoot, caplog: pytest.LogCaptureFixture
) -> None:
    driver_root.remove()
    plugin = node.plugin(device_list_strategy="envvar,cdi-cri")
    for _ in range(3):
        assert {} == unhealthy(devices(plugin))
    (problem,) = told(caplog)
    assert problem.endswith("only containers of NVIDIA's runtime get the driver")


def test_a_driver_without_a_version_has_no_libraries(node: GpuRig, driver_root: DriverRoot) -> None:
    assert driver_root.path.exists()
    node.fake.fail("nvmlSystemGetDriverVersion", 999)
    (reason,) = unhealthy(devices(node.plugin(device_list_strategy="cdi-cri"))).values()
    assert "the driver does not tell its version" in reason


def test_a_file_of_the_toolkit_whose_libraries_are_gone_is_out_of_date(
    node: GpuRig, driver_root: DriverRoot, caplog: pytest.LogCaptureFixture
) -> None:
    """A runtime would refuse to start the container, long after the pod was scheduled."""
    library = f"/usr/lib64/libcuda.so.{VERSION}"
    generate(node.cdi_dir / "nvidia.json", uuid(0), driver=VERSION)
    plugin = node.plugin(device_list_strategy="cdi-cri")
    assert [f"nvidia.com/gpu={uuid(0)}"] == [*devices(plugin)[uuid(0)].cdi_names]
    upgrade(driver_root)
    for _ in range(2):
        (reason,) = unhealthy(devices(plugin)).values()
        assert UPGRADED in reason
    stale = [vars(one)["reason"] for one in caplog.records if "stale CDI" in one.message]
    assert [f"it mounts {library}, which is gone"] == stale
    vanish(driver_root)
    assert {} == unhealthy(devices(plugin)), "what cannot be seen from here is not gone"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [one for one in caplog.records if one.message == "driver libraries not found"]
    assert all(one.levelno == logging.WARNING for one in records)
    return [vars(one)["problem"] for one in records]


# The Windows Subsystem for Linux.


@pytest.fixture
def windows(rig: GpuRig, driver_root: DriverRoot) -> DriverRoot:
    """A node of WSL, with the libraries and one of two drivers of Windows."""
    driver_root.remove()
    rig.has_nodes("dxg")
    made = driver_root.install("1.1", "usr/lib/wsl/lib")
    driver_root.write("usr/lib/wsl/lib/nvidia-smi", "#!/bin/sh", 0o755)
    driver_root.write("usr/lib/wsl/drivers/nv_dispi.inf_amd64_1f/libcuda.so.1.1", "")
    driver_root.write("usr/lib/wsl/drivers/nvhda.inf_amd64_2e/nvhda64v.sys", "")
    assert made.libraries
    return driver_root


def test_on_wsl_containers_get_the_libraries_and_the_drivers_of_windows(
    rig: GpuRig, windows: DriverRoot
) -> None:
    assert windows.path.exists()
    plugin = rig.plugin(device_list_strategy="cdi-cri")
    assert {} == unhealthy(devices(plugin))
    store = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1f"
    found = mounted(rig)
    assert {"/usr/lib/wsl/lib", store, "/usr/lib/wsl/lib/nvidia-smi"} <= found
    assert any(one.startswith("/usr/lib/wsl/lib/libcuda.so.1") for one in found)
    assert not any("nvhda" in one for one in found)


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("usr/lib/wsl/lib", "libcuda.so.1 is not in"),
        ("usr/lib/wsl/drivers/nv_dispi.inf_amd64_1f", "nv* has libcuda"),
    ],
)
def test_on_wsl_without_them_the_gpu_is_unhealthy(
    rig: GpuRig, windows: DriverRoot, gone: str, why: str
) -> None:
    shutil.rmtree(windows.path / gone)
    (reason,) = unhealthy(devices(rig.plugin(device_list_strategy="cdi-cri"))).values()
    assert why in reason


def test_on_wsl_the_toolkits_file_is_enough(rig: GpuRig) -> None:
    rig.has_nodes("dxg")
    generate(rig.cdi_dir / "nvidia.json", "all")
    found = devices(rig.plugin(device_list_strategy="cdi-cri"))
    assert {} == unhealthy(found)
    assert ("nvidia.com/gpu=all",) == found["all"].cdi_names
