"""Runs a program by runc with what a CDI specification says, as a runtime with CDI does.

It needs no containerd, and none that knows CDI. `Bundle(folder, image).run(...)`.
"""

import json
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from containers.linker_images import Image

Edits = Mapping[str, Any]


class Bundle:
    """A root file system and how a container with it is run."""

    def __init__(self, folder: Path, image: Image) -> None:
        self._folder = folder
        self.root = folder / "rootfs"
        image.unpack(self.root)
        subprocess.run(["runc", "spec"], cwd=folder, check=True)
        self._spec = (folder / "config.json").read_text()

    def run(
        self,
        edits: Sequence[Edits],
        *words: str,
        user: int = 0,
        read_only: bool = False,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, and return it with what it printed."""
        spec = json.loads(self._spec)
        spec["root"]["readonly"] = read_only
        spec["process"] |= {"terminal": False, "args": words}
        spec["process"]["user"] = {"uid": user, "gid": user}
        spec["process"]["env"] += [f"{name}={value}" for name, value in environment.items()]
        for one in edits:
            apply(spec, one)
        (self._folder / "config.json").write_text(json.dumps(spec))
        return subprocess.run(
            ["runc", f"--root={self._folder}/runc", "run", f"cdi-{token_hex(4)}"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


def edits_of(specification: Mapping[str, Any], *names: str) -> list[Edits]:
    """Return what a container gets that is given devices of a specification."""
    found = [one for one in specification["devices"] if one["name"] in names]
    assert len(names) == len(found)
    return [specification.get("containerEdits", {}), *(one["containerEdits"] for one in found)]


def apply(spec: dict[str, Any], edits: Edits) -> None:
    """Have a container's OCI specification have what ``edits`` say."""
    spec["process"]["env"] += edits.get("env", ())
    spec["mounts"] += [
        {
            "source": one["hostPath"],
            "destination": one["containerPath"],
            "type": "bind",
            "options": [*one.get("options", ())],
        }
        for one in edits.get("mounts", ())
    ]
    for node in edits.get("deviceNodes", ()):
        status = Path(node.get("hostPath", node["path"])).stat()
        assert stat.S_ISCHR(status.st_mode), f"{node} is no device"
        numbers = {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
        mode = {"fileMode": stat.S_IMODE(status.st_mode)}
        linux = spec["linux"]
        linux.setdefault("devices", []).append(
            {"path": node["path"], "type": "c", **numbers, **mode}
        )
        linux["resources"]["devices"].append(
            {"allow": True, "type": "c", **numbers, "access": node["permissions"]}
        )
    for hook in edits.get("hooks", ()):
        own = {key: value for key, value in hook.items() if key != "hookName"}
        spec.setdefault("hooks", {}).setdefault(hook["hookName"], []).append(own)
