"""The pretended hardware of a simulated node, which the cases of plugins describe."""

import base64
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODE = Path("/dev/fuse")
"""The real device behind the device nodes that are opened. Reading and writing it has no effect,
and unlike /dev/null, not every container has it."""


@dataclass(frozen=True)
class StandIn:
    """Variables by which a plugin finds the hardware, all of it below one folder."""

    folder: Path
    environment: dict[str, str]
    host: Mapping[str, Path] = field(default_factory=dict)
    """The replacements of the node's directories."""
    writable: Sequence[str] = ()
    """Folders in it that the plugin changes, as a program changes the hardware."""

    def show(self, pod: dict[str, Any]) -> None:
        """Mount it into the plugin's container in ``pod``, at the same path."""
        (container,) = pod["containers"]
        container["env"] += [{"name": key, "value": text} for key, text in self.environment.items()]
        mounts: list[dict[str, Any]] = container.setdefault("volumeMounts", [])
        for one in ("", *self.writable):
            name, path = f"hardware-{one}".strip("-"), str(self.folder / one)
            mounts.append({"name": name, "mountPath": path, "readOnly": not one})
            host = {"path": path, "type": "Directory"}
            pod["volumes"].append({"name": name, "hostPath": host})


def make_nodes(paths: Iterable[Path], opened: str) -> None:
    """Create device nodes in place of a tree's; those whose names begin so can be opened."""
    for number, path in enumerate(sorted(paths)):
        path.unlink()
        is_opened = path.name.startswith(opened) and NODE.exists()
        make_node(path, NODE.stat().st_rdev if is_opened else os.makedev(240, number))


def make_node(path: Path, number: int | None = None) -> None:
    """Create a device node, or a link to one if that is not allowed and nothing opens it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and NODE.exists():
        os.mknod(path, stat.S_IFCHR, NODE.stat().st_rdev if number is None else number)
        path.chmod(0o666)
    else:
        path.symlink_to("/dev/null")


def pack(folder: Path) -> str:
    """Return an archive of a folder in /tmp, with device nodes, for ``Deployed.unpack``."""
    assert folder.parts[:2] == ("/", "tmp"), folder
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, folder.relative_to("/tmp"))
    return base64.b64encode(packed.getvalue()).decode()
