"""Nodes of the platforms that people run: what a pod gets there, and what the doctor says.

``rows`` sets each up below a temporary folder, and asks the real plugin and the real doctor. The
table of ``plugins/gpu/docs/platforms.md`` is made of it.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.checks import Node, Verdict
from deviceplugin_gpu import doctor
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_gpu.nvml.library import MISSING, SONAME, Library
from deviceplugin_gpu.plugin import GpuPlugin
from gpu.driver_root import VERSION, DriverRoot
from gpu.fake_nvml import Environment, FakeGpu, FakeMig, Fleet
from gpu.rig import GpuRig, generate

TENANTS: Final = "GPUs of other tenants"
"""What the doctor warns of wherever NVIDIA's runtime is the default: left out."""
_GPUS: Final = "NVIDIA GPUs"
_BOTH: Final = "cdi-annotations, cdi-cri"
HEADER: Final = (
    "| Platform | `envvar` | `volume-mounts` | `cdi-cri` | The doctor |\n|---|---|---|---|---|"
)
STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-cri")
ORIN: Final = FakeGpu(
    0,
    values={
        "uuid": "54d0709b-558d-5a59-9c65-0c5fc14a21a4",
        "name": "Orin (nvgpu)",
        "compute": "8.7",
        "mig": "unsupported",
    },
)
THOR: Final = FakeGpu(0, values={"name": "NVIDIA Thor", "compute": "11.0", "mig": "unsupported"})
_ONE: Final = Fleet.of(1)
_MIG: Final = Fleet((FakeGpu(0, (FakeMig(1, "3g.20gb"),)),))
_OTHER: Final = "580.105.08"
_CLASS: Final = '[plugins."io.containerd.cri.v1.runtime".containerd'
_HAS_CLASS: Final = f"""version = 3
{_CLASS}.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
_RUNTIMES: Final[Mapping[str, tuple[str, str]]] = {
    "NVIDIA's": (
        "etc/containerd/config.toml",
        f'{_HAS_CLASS}{_CLASS}]\ndefault_runtime_name = "nvidia"\n',
    ),
    "containerd 2": ("etc/containerd/config.toml", "version = 3\n"),
    "containerd 1.7": ("etc/containerd/config.toml", "version = 2\n"),
    "CRI-O": ("etc/crio/crio.conf", "[crio.runtime]\n"),
    "RKE2": ("var/lib/rancher/rke2/agent/etc/containerd/config.toml", _HAS_CLASS),
}


class OnlyBelow(Library):
    """A library that is only below its root, even if this process has another one loaded."""

    @override
    def _places(self) -> Iterator[str]:
        yield from (place for place in super()._places() if place != SONAME)
        self.attempts.setdefault(str(self.root / SONAME), MISSING)


@dataclass(frozen=True)
class Platform:
    """A node, by how it differs from a bare one with a GPU and its driver."""

    name: str
    runtime: str = "NVIDIA's"
    fleet: Fleet | None = _ONE
    """None without NVML."""
    libraries: str = "usr/lib64"
    """Of the driver, below its root; empty if the root is not mounted."""
    version: str = VERSION
    """Of the libraries."""
    toolkit: tuple[str, ...] = ()
    """Devices in the specification of NVIDIA's toolkit."""
    cards: Mapping[str, str] = field(default_factory=lambda: {"0000:01:00.0": "nvidia"})
    files: Mapping[str, str] = field(default_factory=dict)
    """Others of the node."""
    unsupported: tuple[str, ...] = ()
    """Functions of NVML."""
    settings: Mapping[str, Any] = field(default_factory=dict)


_JETSON: Final[Mapping[str, Any]] = {
    "libraries": "",
    "cards": {},
    "files": {"etc/nv_tegra_release": "# R36"},
}
_INTEGRATED: Final = ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMinorNumber")
_ADDRESS: Final = "0000:01:00.0"
PLATFORMS: Final = (
    Platform("Debian, Ubuntu", libraries="usr/lib/x86_64-linux-gnu/nvidia/current"),
    Platform("RHEL, SUSE, with the toolkit's specification", toolkit=(FakeGpu(0).uuid, "all")),
    Platform("any, without NVIDIA's runtime", "containerd 2"),
    Platform("the same, with containerd 1.7", "containerd 1.7"),
    Platform("the same, with CRI-O", "CRI-O"),
    Platform("the same, driver's root not mounted", "containerd 2", libraries=""),
    Platform("MIG, `mixed`", fleet=_MIG, settings={"mig_strategy": "mixed"}),
    Platform("RKE2, k3s: the class `nvidia`", "RKE2"),
    Platform("the GPU operator's driver container", files={"driver-root/dev/nvidiactl": ""}),
    Platform("GKE's driver installer", "containerd 2", libraries="lib64"),
    Platform("Bottlerocket", "containerd 2", libraries="usr/lib/nvidia/tesla"),
    Platform("Talos", "containerd 2", libraries="usr/local/glibc/usr/lib"),
    Platform("NixOS, `/run/opengl-driver` as the root", "containerd 2", libraries="lib"),
    Platform(
        "WSL",
        fleet=None,
        libraries="usr/lib/wsl/lib",
        cards={},
        files={"dev/dxg": "", "driver-root/usr/lib/wsl/drivers/nv_dispi/libcuda.so.1.1": ""},
    ),
    Platform("Jetson, without NVML", fleet=None, **_JETSON),
    Platform("Jetson Orin", fleet=Fleet((ORIN,)), unsupported=_INTEGRATED, **_JETSON),
    Platform(
        "Jetson Orin, with the toolkit's specification",
        fleet=Fleet((ORIN,)),
        toolkit=("0", "all"),
        unsupported=_INTEGRATED,
        **_JETSON,
    ),
    Platform("Jetson Thor", fleet=Fleet((THOR,)), libraries="", files=_JETSON["files"]),
    Platform(
        "DGX Spark (GB10)",
        fleet=Fleet.of(1, name="NVIDIA GB10", pci="000f:01:00.0"),
        cards={"000f:01:00.0": "nvidia"},
        unsupported=("nvmlDeviceGetMemoryInfo",),
    ),
    Platform(
        "vGPU guest", fleet=Fleet.of(1, name="GRID A100D-80C", events="no", mig="unsupported")
    ),
    Platform(
        "VFIO has all GPUs", fleet=None, libraries="", cards={_ADDRESS: "nvgrace-gpu-vfio-pci"}
    ),
    Platform("VFIO has one of two", cards={_ADDRESS: "nvidia", "0000:02:00.0": "vfio-pci"}),
    Platform("nouveau has one of two", cards={_ADDRESS: "nvidia", "0000:02:00.0": "nouveau"}),
    Platform("no driver", fleet=None, libraries="", cards={_ADDRESS: ""}),
    Platform("libraries newer than the module", "containerd 2", version=_OTHER),
)


def row(platform: Platform, rig: GpuRig, compiled: Path) -> str:
    """Return the table's line for a platform, set up on ``rig``."""
    _set_up(platform, rig, compiled)
    cells = [_given(platform, rig, strategy) for strategy in STRATEGIES]
    return f"| {' | '.join([platform.name, *cells, _told(rig.path)])} |"


def _set_up(platform: Platform, rig: GpuRig, compiled: Path) -> None:
    (rig.driver_root / "usr/lib64" / SONAME).unlink()
    if platform.libraries:
        DriverRoot(rig.driver_root, compiled).install(platform.version, platform.libraries)
    if platform.fleet is not None:
        rig.has(platform.fleet)
        place = rig.driver_root / (platform.libraries or "usr/lib64") / SONAME
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(rig.library)
        nodes = [f"nvidia{gpu.slot}" for gpu in platform.fleet.gpus]
        rig.has_nodes("nvidiactl", "nvidia-uvm", *nodes)
        rig.path.joinpath("proc/driver/nvidia").mkdir(parents=True)
        version = f"NVRM version: NVIDIA UNIX Open Kernel Module  {VERSION}\n"
        rig.path.joinpath("proc/driver/nvidia/version").write_text(version)
    for function in platform.unsupported:
        rig.fake.fail(function, 3)
    for address, driver in platform.cards.items():
        rig.has_card(address, driver=driver)
    for path, text in {**dict([_RUNTIMES[platform.runtime]]), **platform.files}.items():
        place = rig.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    if platform.toolkit:
        generate(rig.path / "etc/cdi/nvidia.json", *platform.toolkit)


def _given(platform: Platform, rig: GpuRig, strategy: str) -> str:
    """Return what a pod gets by a strategy, or why it gets nothing."""
    settings = rig.settings(device_list_strategy=strategy, **platform.settings)
    driver = rig.driver(OnlyBelow(rig.driver_root))
    toolkit = Toolkit([rig.path / "etc/cdi"])
    plugin = GpuPlugin(settings, driver=driver, roots=rig.roots, toolkit=toolkit, clock=rig.clock)
    found: list[dp.Device] = []
    with suppress(dp.DiscoveryError):
        found = [*plugin.discover()]
    if not found:
        return "no device"
    if not all(device.health for device in found):
        return "unhealthy"
    got = plugin.allocate(found)
    names = [mount.container_path.rpartition("/")[2] for mount in got.mounts] or got.cdi_names
    text = ", ".join(names or [got.envs["NVIDIA_VISIBLE_DEVICES"]])
    ours = re.sub(r"k8s\.device-plugin\.nvidia\.com/gpu=", "our ", text)
    theirs = re.sub(r"nvidia\.com/gpu=", "toolkit's ", ours)
    return re.sub(r"(GPU|MIG)-[-0-9a-f]+", "UUID", theirs)


def _told(root: Path) -> str:
    """Return which strategies would run, as the doctor has it, and what else is wrong."""
    found = [*doctor.look(Node.at_root(root))]
    what = "CUDA pods with "
    said = []
    for verdict, word in ((Verdict.OK, "runs"), (Verdict.UNKNOWN, "may run")):
        own = [one.looked_at for one in found if one.verdict is verdict and what in one.looked_at]
        names = ", ".join(one.removeprefix(what).replace(_BOTH, "CDI") for one in own)
        said += [f"{word}: {names}"] if names else []
    faults = [one for one in found if one.verdict in {Verdict.WARNING, Verdict.FAILURE}]
    kinds = {_GPUS: lambda one: one.found.partition(";")[0]}
    told = [kinds.get(one.looked_at, lambda one: one.looked_at)(one) for one in faults]
    said += [one for one in dict.fromkeys(told) if what not in one and one != TENANTS]
    return "; ".join(said) or "nothing would run"


def rows(library: Path, compiled: Path, environment: Environment) -> dict[str, str]:
    """Return the line of each platform, by its name."""
    found = {}
    for platform in PLATFORMS:
        with tempfile.TemporaryDirectory() as folder:
            rig = GpuRig(Path(folder), library, environment)
            found[platform.name] = row(platform, rig, compiled)
            rig.close()
    return found


def orin(rig: GpuRig) -> GpuRig:
    """Have the GPU of a Jetson Orin, as JetPack 6 and 7 have it."""
    rig.has(Fleet((ORIN,)))
    for function in _INTEGRATED:
        rig.fake.fail(function, 3)
    return rig
