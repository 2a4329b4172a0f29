"""Hardware that a simulated node pretends to have: the driver's library, sysfs, device nodes."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_nvml import FakeNvml, Fleet, build_or_skip
from fpga_trees import AFU, DFL, OTHER_AFU, FpgaTree

_NODE = Path("/dev/fuse")
"""What device nodes really are: opened for reading or writing without any effect, and, unlike
/dev/null, not for every container."""


@dataclass(frozen=True)
class StandIn:
    """Variables by which a plugin finds it. It is all below one folder."""

    folder: Path
    environment: dict[str, str]

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
    """Make two cards with a port each, by the kernel's DFL driver."""
    tree = FpgaTree(folder, DFL)
    tree.simple(AFU)
    tree.simple(OTHER_AFU, address="0000:5e:00.0", number=1)
    for path in [*tree.dev.iterdir()]:
        path.unlink()
        _make_node(path)
    return StandIn(folder, {"DP_SYSFS_DIR": str(tree.sys), "DP_DEV_DIR": str(tree.dev)})


def _make_node(path: Path) -> None:
    """Make a device node; a file where that is not allowed, and nobody opens it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and _NODE.exists():
        os.mknod(path, stat.S_IFCHR, _NODE.stat().st_rdev)
        path.chmod(0o666)
    else:
        path.touch()


MAKERS: dict[str, Callable[[Path, Path], StandIn]] = {"gpu": gpus, "fpga": fpga}
"""By plugin."""
