"""Hardware that a simulated node pretends to have: the driver's library, sysfs, device nodes."""

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fpga.cards import write_hook
from fpga.trees import AFU, DFL, FpgaTree, number_of
from gpu.fake_nvml import FakeNvml, Fleet, build_or_skip

_NODE = Path("/dev/fuse")
"""What those device nodes really are that are opened: for reading or writing without any effect,
and, unlike /dev/null, not for every container."""


@dataclass(frozen=True)
class StandIn:
    """Variables by which a plugin finds it. It is all below one folder."""

    folder: Path
    environment: dict[str, str]
    host: Mapping[str, Path] = field(default_factory=dict)
    """What stands for directories of the node."""

    def show(self, pod: dict[str, Any]) -> None:
        """Have the plugin's container in ``pod`` see it: read-only, where it is here."""
        (container,) = pod["containers"]
        container["env"] += [{"name": key, "value": text} for key, text in self.environment.items()]
        mount = {"name": "hardware", "mountPath": str(self.folder), "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        host = {"path": str(self.folder), "type": "Directory"}
        pod["volumes"].append({"name": "hardware", "hostPath": host})


def gpus(folder: Path, cache: Path) -> StandIn:
    """Make two GPUs of the fake driver. Skips the test where there is no C compiler."""
    library = build_or_skip(cache)
    place = folder / "driver/usr/lib64"
    place.mkdir(parents=True)
    shutil.copy(library, place)
    fake = FakeNvml(folder / "nvml", Fleet.of(2))
    for name in ("nvidia0", "nvidia1"):
        _make_node(folder / "driver/dev" / name)
    return StandIn(
        folder,
        {
            "DP_DRIVER_ROOT": str(folder / "driver"),
            "DP_DRIVER_ROOT_CTR_PATH": str(folder / "driver"),
            "FAKE_NVML_FLEET": str(fake.path),
        },
    )


def fpga(folder: Path, _cache: Path) -> StandIn:
    """Make two cards with a port each, by the kernel's DFL driver, and no bitstreams."""
    tree = FpgaTree(folder, DFL)
    (first,) = tree.simple(AFU)
    (other,) = tree.simple(AFU, address="0000:5e:00.0", number=1)
    if _NODE.exists():
        tree.renumber(first, _NODE.stat().st_rdev)
    for port in (first, other):  # The hook tells them apart by numbers: one can be opened.
        path = tree.dev / port.name
        path.unlink()
        _make_node(path, os.makedev(*number_of(port)))
    host = {"/opt/intel/fpga-sw": folder / "opt"}
    write_hook(folder / "hook", folder / "opt/intel-fpga-crihook", tree)
    environment = {
        "DP_SYSFS_DIR": str(tree.sys),
        "DP_DEV_DIR": str(tree.dev),
        "DP_HOOK": str(folder / "hook"),
    }
    return StandIn(folder, environment, host)


def _make_node(path: Path, number: int | None = None) -> None:
    """Make a device node; a file where that is not allowed, and nobody opens it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and _NODE.exists():
        os.mknod(path, stat.S_IFCHR, _NODE.stat().st_rdev if number is None else number)
        path.chmod(0o666)
    else:
        path.touch()


MAKERS: dict[str, Callable[[Path, Path], StandIn]] = {"gpu": gpus, "fpga": fpga}
"""By plugin."""
