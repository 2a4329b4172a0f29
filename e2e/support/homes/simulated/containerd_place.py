"""The plugin and pods as containers of containerd, with the kubelet's requests."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import grpc
import pytest

from containers import containerd as daemon
from containers import cri_runtime_pb2 as pb
from containers.containerd import Containerd
from containers.cri import Runtime, read_log
from containers.pod_config import Node, PodConfig
from deviceplugin_testing.simulator import RunOptions
from homes.home import LOOK, Given, NotStartedError, seen
from homes.simulated.place import Installation
from patience import eventually


@dataclass(frozen=True)
class Running:
    """A pod with its main container."""

    pod: str
    container: str
    config: PodConfig
    log: Path

    def printed(self) -> str:
        return read_log(self.log) if self.log.exists() else ""


class Containers:
    """See Place. ``images`` is a folder of OCI archives."""

    def __init__(self, root: Path, containerd: Containerd, images: Path) -> None:
        self._containerd, self._images = containerd, images
        self._runtime: Runtime = containerd.runtime
        self._node = Node("node-1", containerd.cgroup, root / "pods")
        self._plugin: Running | None = None
        self._grace = 0
        self._log: Path | None = None
        self._pods: dict[str, Running] = {}

    # The plugin

    def start(self, installation: Installation) -> None:
        pod, (own,) = installation.pod, installation.pod["spec"]["containers"]
        name = f"{installation.plugin.name}-device-plugin"
        (archive,) = self._images.glob(f"{name}-*.tar")
        self._containerd.load(archive, own["image"])
        host = {**installation.host, "/var/run/cdi": self._containerd.cdi}
        node = Node(self._node.name, self._node.cgroup, self._node.folder, host)
        config = PodConfig(pod, token_hex(8), node, installation.configs)
        sandbox = self._runtime.run_pod(config.sandbox)
        for first in pod["spec"].get("initContainers", ()):
            self._run_to_end(sandbox, config, config.container(first))
        asked = config.container(own, DP_HTTP_ADDRESS=installation.listen)
        self._grace = pod["spec"]["terminationGracePeriodSeconds"]
        self._log = installation.log
        self._plugin = self._start(sandbox, config, asked)

    def is_alive(self) -> bool:
        if self._plugin is None:
            return False
        self._keep_log()
        return self._runtime.is_running(self._plugin.container)

    def kill(self) -> None:
        assert self._plugin is not None
        self._runtime.stop(self._plugin.container)
        self._remove_plugin()

    def terminate(self) -> int:
        assert self._plugin is not None
        self._runtime.stop(self._plugin.container, self._grace)
        status = self._runtime.status(self._plugin.container).exit_code
        self._remove_plugin()
        return status

    def _remove_plugin(self) -> None:
        assert self._plugin is not None
        self._keep_log()
        self._runtime.remove_pod(self._plugin.pod)
        self._plugin = None

    def _keep_log(self) -> None:
        """Copy the plugin's log to where the home reads it."""
        if self._plugin is not None and self._log is not None:
            self._log.write_text(self._plugin.printed())

    # Pods

    def _start(self, sandbox: str, config: PodConfig, asked: pb.ContainerConfig) -> Running:
        made = self._runtime.start(sandbox, config.sandbox, asked)
        return Running(sandbox, made, config, config.log(asked.metadata.name))

    def _run_to_end(self, sandbox: str, config: PodConfig, asked: pb.ContainerConfig) -> str:
        running = self._start(sandbox, config, asked)
        eventually(lambda: self._runtime.has_ended(running.container))
        said = running.printed()
        assert 0 == self._runtime.status(running.container).exit_code, said
        return said

    def run_pod(self, pod: Mapping[str, Any], options: RunOptions) -> Given:
        config = PodConfig(pod, token_hex(8), self._node)
        (own,) = pod["spec"]["containers"]
        sandbox = self._runtime.run_pod(config.sandbox)
        running = self._start(sandbox, config, config.container(own, options))
        self._pods[config.name] = running
        annotations = dict(self._runtime.status(running.container).annotations)
        return seen(self.execute(config.name, LOOK), annotations)

    def run_to_end(self, pod: Mapping[str, Any], options: RunOptions) -> str:
        config = PodConfig(pod, token_hex(8), self._node)
        (own,) = pod["spec"]["containers"]
        sandbox = self._runtime.run_pod(config.sandbox)
        try:
            return self._run_to_end(sandbox, config, config.container(own, options))
        except grpc.RpcError as error:
            raise NotStartedError(str(error)) from error
        finally:
            self._runtime.remove_pod(sandbox)

    def need_containers(self) -> None:
        """They are."""

    def need_cdi(self) -> None:
        if missing := daemon.why_no_cdi():
            pytest.skip(missing)

    def execute(self, name: str, command: str) -> str:
        container = self._pods[name].container
        return self._runtime.execute(container, "sh", "-c", command).output

    def is_running(self, name: str) -> bool:
        return self._runtime.is_running(self._pods[name].container)

    def delete(self, name: str) -> None:
        if name in self._pods:
            self._runtime.remove_pod(self._pods.pop(name).pod)

    # The end

    def collect(self, folder: Path) -> None:
        shutil.copy(self._containerd.log, folder / "containerd.log")
        for log in self._node.folder.glob("*/*.log"):
            (folder / f"{log.parent.name}-{log.name}").write_text(read_log(log))

    def close(self) -> None:
        for pod in self._runtime.pods():
            self._runtime.remove_pod(pod)
        for specification in self._containerd.cdi.iterdir():
            specification.unlink()
        assert [] == self._containerd.shims()
