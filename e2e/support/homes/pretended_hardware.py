"""Hardware that a simulated node pretends to have; what it is, the cases of plugins say."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODE = Path("/dev/fuse")
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


def make_node(path: Path, number: int | None = None) -> None:
    """Make a device node; a link to one where that is not allowed, and nobody opens it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and NODE.exists():
        os.mknod(path, stat.S_IFCHR, NODE.stat().st_rdev if number is None else number)
        path.chmod(0o666)
    else:
        path.symlink_to("/dev/null")
