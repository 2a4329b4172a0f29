"""Nodes of the platforms that people run: what a pod gets there, and what the doctor says.

``rows`` sets each up below a temporary folder, and asks the real plugin and the real doctor. The
table of ``plugins/gpu/docs/platforms.md`` is made of it.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
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

HEADER: Final = (
    "| Platform | `envvar` | `volume-mounts` | `cdi-cri` | The doctor |\n|---|---|---|---|---|"
)
_TENANTS: Final = "GPUs of other tenants"
"""What the doctor warns of wherever NVIDIA's runtime is the default: left out."""
_GPUS: Final = "NVIDIA GPUs"
_CLASS: Final = '[plugins."io.containerd.cri.v1.runtime".containerd'
_HAS_CLASS: Final = f"""version = 3
{_CLASS}.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
_CONTAINERD: Final = "etc/containerd/config.toml"
_RUNTIMES: Final[Mapping[str, tuple[str, str]]] = {
    "NVIDIA's": (_CONTAINERD, f'{_HAS_CLASS}{_CLASS}]\ndefault_runtime_name = "nvidia"\n'),
    "containerd 2": (_CONTAINERD, "version = 3\n"),
    "containerd 1.7": (_CONTAINERD, "version = 2\n"),
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
    """A node."""

    name: str
    runtime: str = "NVIDIA's"
    gpu: Mapping[str, Any] | None = field(default_factory=dict)
    """As the fake driver has it; None without NVML."""
    migs: Sequence[str] = ()
    libraries: str = "usr/lib64"
    """Of the driver, below its root; empty if the root is not mounted."""
    version: str = VERSION
    """Of the libraries."""
    toolkit: Sequence[str] = ()
    """Devices in the specification of NVIDIA's toolkit."""
    driver: str = ""
    """Of the libraries in that."""
    cards: Mapping[str, str] = field(default_factory=lambda: {"0000:01:00.0": "nvidia"})
    files: Mapping[str, str] = field(default_factory=dict)
    """Others of the node."""
    unsupported: Sequence[str] = ()
    """Functions of NVML."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def has_nvml(self, rig: GpuRig) -> None:
        """Have its GPU by NVML."""
        migs = tuple(FakeMig(number, profile) for number, profile in enumerate(self.migs, 1))
        rig.has(Fleet((FakeGpu(0, migs, self.gpu or {}),)))
        for function in self.unsupported:
            rig.fake.fail(function, 3)

    def set_up(self, rig: GpuRig, compiled: Path) -> None:
        """Have all of the node."""
        (rig.driver_root / "usr/lib64" / SONAME).unlink()
        if self.libraries:
            DriverRoot(rig.driver_root, compiled).install(self.version, self.libraries)
        files = {**dict([_RUNTIMES[self.runtime]]), **self.files}
        if self.gpu is not None:
            self.has_nvml(rig)
            place = rig.driver_root / (self.libraries or "usr/lib64") / SONAME
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(rig.library)
            rig.has_nodes("nvidiactl", "nvidia-uvm", "nvidia0")
            files["proc/driver/nvidia/version"] = f"NVRM version: NVIDIA module  {VERSION}\n"
        for address, driver in self.cards.items():
            rig.has_card(address, driver=driver)
        for path, text in files.items():
            place = rig.path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        if self.toolkit:
            generate(rig.path / "etc/cdi/nvidia.json", *self.toolkit, driver=self.driver)


_FILE: Final = Path(__file__).with_suffix(".yaml")
PLATFORMS: Final = {
    name: Platform(name, **given) for name, given in yaml.safe_load(_FILE.read_text()).items()
}


def row(platform: Platform, rig: GpuRig, compiled: Path) -> str:
    """Return the table's line for a platform, set up on ``rig``."""
    platform.set_up(rig, compiled)
    strategies = ("envvar", "volume-mounts", "cdi-cri")
    cells = [_given(platform, rig, strategy) for strategy in strategies]
    return f"| {' | '.join([platform.name, *cells, _told(rig.path)])} |"


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
        names = ", ".join(
            one.removeprefix(what).replace("cdi-annotations, cdi-cri", "CDI") for one in own
        )
        said += [f"{word}: {names}"] if names else []
    faults = [one for one in found if one.verdict in {Verdict.WARNING, Verdict.FAILURE}]
    kinds = {_GPUS: lambda one: one.found.partition(";")[0]}
    told = [kinds.get(one.looked_at, lambda one: one.looked_at)(one) for one in faults]
    said += [one for one in dict.fromkeys(told) if what not in one and one != _TENANTS]
    return "; ".join(said) or "nothing would run"


def rows(library: Path, compiled: Path, environment: Environment) -> dict[str, str]:
    """Return the line of each platform, by its name."""
    found = {}
    for platform in PLATFORMS.values():
        with tempfile.TemporaryDirectory() as folder:
            rig = GpuRig(Path(folder), library, environment)
            found[platform.name] = row(platform, rig, compiled)
            rig.close()
    return found
