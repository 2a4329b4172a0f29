"""Runs the container of a rendered DaemonSet or Deployment from its image, as a runtime does.

Own process ids and mounts, a read-only root, only the mounts of the manifest, no capabilities, no
new privileges, its user, its environment. Not there: control groups, seccomp and SELinux. Needs
root, and util-linux.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from manifests.kustomize import Manifest

START = Path(__file__).with_name("first_process.py")
POSSIBLE = os.geteuid() == 0 and shutil.which("unshare") is not None


class Container:
    """The only container of ``manifests``.

    ``host`` says where directories of the host are here: a path of a hostPath volume, and what
    stands for it. What it does not name is the real one.
    """

    def __init__(
        self,
        root: Path,
        config: Mapping[str, Any],
        manifests: list[Manifest],
        host: Mapping[str, Path],
        scratch: Path,
    ) -> None:
        (found,) = (one for one in manifests if one["kind"] in {"DaemonSet", "Deployment"})
        self._pod = found["spec"]["template"]["spec"]
        (self._container,) = self._pod["containers"]
        self._configs = {
            one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"
        }
        self._root, self._image, self._host = root, config["config"], host
        self._scratch = scratch

    def start(
        self,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        log: int | IO[str] = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start it. The process is the one outside; its only child is process 1 inside."""
        spec = {
            "root": str(self._root),
            "mounts": [self._mount(one) for one in self._container["volumeMounts"]],
            "user": self._pod["securityContext"]["runAsUser"],
            "environment": {**self._environment(), **(environment or {})},
            "command": [
                *self._image["Entrypoint"],
                *self._container.get("args", ()),
                *flags,
            ],
        }
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable, "-I"]
        return subprocess.Popen([*words, str(START), json.dumps(spec)], stderr=log, text=True)

    def _environment(self) -> dict[str, str]:
        known = dict(entry.split("=", 1) for entry in self._image["Env"])
        for entry in self._container.get("env", ()):
            known[entry["name"]] = entry.get("value", "node-1")
        return known

    def _mount(self, mount: Mapping[str, Any]) -> tuple[str, str, bool]:
        (volume,) = (one for one in self._pod["volumes"] if one["name"] == mount["name"])
        if "configMap" in volume:
            source = self._written(self._configs[volume["configMap"]["name"]])
        elif "emptyDir" in volume:
            source = self._scratch / volume["name"]
            source.mkdir(parents=True)
            source.chmod(0o777)
        else:
            host = volume["hostPath"]
            source = self._host.get(host["path"], Path(host["path"]))
            if host["type"] == "DirectoryOrCreate":
                source.mkdir(parents=True, exist_ok=True)
            assert source.is_dir() or host["type"] != "Directory", f"no directory {source}"
        return str(source), mount["mountPath"], bool(mount.get("readOnly"))

    def _written(self, files: Mapping[str, str]) -> Path:
        self._scratch.mkdir(exist_ok=True)
        for name, text in files.items():
            (self._scratch / name).write_text(text)
        return self._scratch


def first_process(outside: subprocess.Popen[str]) -> int:
    """Return the id, outside, of the process that is 1 inside."""
    children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
    (child,) = children
    return int(child)
