"""A node with fake GPUs, and GPU plugins that know no other node."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.backoff import Clock
from deviceplugin.kit.configuration import finished, of_plain, of_text
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.plugin import GpuPlugin
from gpu.fake_nvml import Environment, FakeGpu, FakeNvml, Fleet

GPU = "nvidia.com/gpu"


def uuid(slot: int) -> str:
    """Return the UUID of the GPU in ``slot``."""
    return FakeGpu(slot).uuid


def uuids(*slots: int) -> set[str]:
    """Return the UUIDs of the GPUs in ``slots``."""
    return {uuid(slot) for slot in slots}


class GpuRig:
    """Fake GPUs in this process, and everything else that a plugin looks at below ``path``."""

    def __init__(self, path: Path, library: Path, environment: Environment) -> None:
        self.path, self.library = path, library
        self.fake = FakeNvml(path / "nvml")
        self.roots = Roots(*(path / name for name in ("dev", "proc", "sys", "etc", "mps")))
        self.driver_root = path / "driver-root"
        self.state_file = path / "health.json"
        self.cdi_dir = path / "cdi"
        self.now: float | None = None
        """Seconds, for those who ask for the time; None for the real time."""
        self.clock = _RigClock(self)
        self._drivers: list[Driver] = []
        for root in (self.roots.dev, self.roots.proc, self.roots.sys, self.roots.etc):
            root.mkdir()
        self.fake.nodes = self.roots.dev
        self.fake.load(library, environment)
        self.install()

    def install(self) -> None:
        """Put the library below the driver's root."""
        folder = self.driver_root / "usr/lib64"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.library.name).symlink_to(self.library)

    def place(self, numa: Mapping[int, int]) -> None:
        """Put the GPUs of slots on NUMA nodes."""
        for slot, node in numa.items():
            folder = self.roots.sys / "bus/pci/devices" / FakeGpu(slot).pci
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "numa_node").write_text(f"{node}\n")

    def bind(self, *slots: int) -> None:
        """Have the kernel's driver serve the GPUs in ``slots``, and no others."""
        folder = self.roots.sys / "bus/pci/drivers/nvidia"
        folder.mkdir(parents=True, exist_ok=True)
        wanted = {FakeGpu(slot).pci for slot in slots}
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink()
        for address in wanted:
            (folder / address).touch()

    def has_card(self, address: str = "0000:3b:00.0", *, driver: str = "") -> None:
        """Have a GPU on the PCI bus, with a driver of the kernel's if one is named."""
        folder = self.roots.sys / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        if driver:
            (folder / "driver").symlink_to(f"../../drivers/{driver}")
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")

    def pull(self, address: str) -> None:
        """Have a GPU of ``has_card`` on the PCI bus no longer."""
        shutil.rmtree(self.roots.sys / "bus/pci/devices" / address)

    def has_nodes(self, *names: str) -> None:
        """Make files in place of device nodes."""
        for name in names:
            path = self.roots.dev / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def settings(self, **given: Any) -> GpuSettings:
        """Return settings; values that have a kind of their own may be given as in a file."""
        paths = {
            "driver_root_ctr_path": self.driver_root,
            "state_file": self.state_file,
            "cdi_dir": self.cdi_dir,
        }
        return replace(GpuSettings(), **{**paths, **as_in_a_file(given)})

    def driver(self, library: Library | None = None) -> Driver:
        """Return a driver that ``close`` closes."""
        library = library or Library(self.driver_root)
        driver = Driver(library, self.roots.sys, self.state_file, self.clock.now)
        driver.session.wait_limit = 0.05
        self._drivers.append(driver)
        return driver

    def plugin(self, **given: Any) -> GpuPlugin:
        """Return a plugin with these settings."""
        return self.plugin_of(self.driver(), **given)

    def plugin_of(self, driver: Driver, **given: Any) -> GpuPlugin:
        """Return a plugin with these settings, and the driver of another, as after a reload."""
        return GpuPlugin(
            self.settings(**given),
            driver=driver,
            roots=self.roots,
            toolkit=Toolkit([self.cdi_dir]),
            clock=self.clock,
        )

    def has(self, fleet: Fleet) -> "GpuRig":
        """Have these GPUs."""
        self.fake.set(fleet)
        return self

    def close(self) -> None:
        """Let go of NVML, so that the next one begins anew."""
        for driver in self._drivers:
            driver.close()


class _RigClock(Clock):
    def __init__(self, rig: GpuRig) -> None:
        self._rig = rig

    @override
    def now(self) -> float:
        return time.monotonic() if self._rig.now is None else self._rig.now


def as_in_a_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their names; those of a kind of their own may be given as in a file."""
    default = GpuSettings()
    kinds = {one.name: one.metadata.get("kind") for one in fields(GpuSettings)}
    values = dict(given)
    for name, value in given.items():
        if isinstance(value, str | dict) and (kind := kinds[name]):
            root = of_text(value) if isinstance(value, str) else of_plain(value)
            values[name] = finished(root, kind)
        elif hasattr(type(getattr(default, name)), "parse"):
            values[name] = type(getattr(default, name)).parse(value)
    return values


def generate(path: Path, *names: str, driver: str = "", nodes: Sequence[str] = ()) -> None:
    """Write a CDI specification of these devices, as NVIDIA's toolkit does for a driver."""
    library = f"/usr/lib64/libcuda.so.{driver}"
    mounts = [{"hostPath": library, "containerPath": library}] if driver else None
    edits = {"deviceNodes": [{"path": node} for node in nodes]} if nodes else {"env": ["A=b"]}
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {"mounts": mounts},
        "devices": [{"name": name, "containerEdits": edits} for name in names],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def devices(plugin: GpuPlugin) -> dict[str, dp.Device]:
    """Return what a discovery finds, by id."""
    return {device.id: device for device in plugin.discover()}


def unhealthy(found: Mapping[str, dp.Device]) -> dict[str, str]:
    """Return the reasons of those that are not healthy, by id."""
    return {one.id: one.health.reason for one in found.values() if not one.health}
