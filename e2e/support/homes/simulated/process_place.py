"""The plugin as a process: an installed command, or an image's root file system. No pods."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from archive import Archive
from containers.unshare import Container, first_process
from deviceplugin_testing.simulator import RunOptions
from homes.case import cases
from homes.home import Given
from homes.simulated.place import Installation
from patience import PATIENCE

BIN = Path(sys.executable).parent


class Processes:
    """See Place. ``images`` is a folder of OCI archives; without it, installed commands are run.

    Pods are the kubelet's requests to a container runtime. Nothing runs.
    """

    def __init__(self, root: Path, images: Path | None = None) -> None:
        self._root, self._images = root, images
        self._process: subprocess.Popen[str] | None = None

    def start(self, installation: Installation) -> None:
        with installation.log.open("w") as log:
            if self._images is not None:
                self._process = self._container(installation, self._images, log)
            else:
                words, environment = self._words(installation)
                self._process = subprocess.Popen(words, env=environment, stderr=log, text=True)

    def _words(self, installation: Installation) -> tuple[list[str], dict[str, str]]:
        """Return the manifest's command, with the paths of this place."""
        (container,) = installation.pod["spec"]["containers"]
        name = installation.plugin.name
        flags = [
            *container.get("args", ()),
            *cases()[name].flags,
            "--plugin-dir=/var/lib/kubelet/device-plugins",
            "--registry-dir=/var/lib/kubelet/plugins_registry",
            "--pod-resources-socket=/var/lib/kubelet/pod-resources/kubelet.sock",
        ]
        for place, here in installation.host.items():
            flags = [flag.replace(f"={place}", f"={here}") for flag in flags]
        environment = {one["name"]: one.get("value", "node-1") for one in container["env"]}
        (files,) = installation.configs.values()
        text = files["config.yaml"]
        for place, here in installation.host.items():
            text = text.replace(f" {place}\n", f" {here}\n")
        (self._root / "config.yaml").write_text(text)
        environment["DP_CONFIG"] = str(self._root / "config.yaml")
        environment["DP_HTTP_ADDRESS"] = installation.listen
        return [str(BIN / f"{name}-device-plugin"), *flags], environment

    def _container(
        self, installation: Installation, images: Path, log: Any
    ) -> subprocess.Popen[str]:
        (path,) = images.glob(f"{installation.plugin.name}-device-plugin-*.tar")
        archive = Archive(path)
        root = self._root / "image"
        if not root.exists():
            archive.extract(root)
        made = Container(
            root,
            archive.config,
            installation.manifests,
            installation.host,
            self._root / "config",
        )
        return made.start(environment={"DP_HTTP_ADDRESS": installation.listen}, log=log)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        assert self._process is not None
        inside = self._process.pid if self._images is None else first_process(self._process)
        subprocess.run(["kill", f"-{signal.SIGTERM:d}", str(inside)], check=True)
        return self._process.wait(PATIENCE)

    def run_pod(self, pod: Mapping[str, Any], options: RunOptions) -> Given:  # noqa: ARG002
        return Given(
            options.envs,
            frozenset(one.container_path for one in options.devices),
            {one.container_path: one.read_only for one in options.mounts},
            options.annotations,
        )

    def run_to_end(self, pod: Mapping[str, Any], options: RunOptions) -> str:
        (container,) = pod["spec"]["containers"]
        environment = {"PATH": os.defpath, **options.envs}
        done = subprocess.run(
            container["command"], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def need_containers(self) -> None:
        pytest.skip("pods are not containers in this home")

    need_cdi = need_containers

    def execute(self, name: str, command: str) -> str:
        raise NotImplementedError

    def is_running(self, name: str) -> bool:
        return bool(name)

    def delete(self, name: str) -> None:
        """Nothing runs."""

    def collect(self, folder: Path) -> None:
        """The logs are those of the home."""

    def close(self) -> None:
        if self.is_alive():
            self.kill()
