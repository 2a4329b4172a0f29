"""A simulated kubelet, with the plugin as its deployment says: installed, or from its image."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from archive import Archive
from container import Container, eventually, first_process
from deviceplugin.simulator import Pod, SimulatedKubelet
from home import Given, Plugin
from kustomize import Manifest, render

BIN = Path(sys.executable).parent
DEPLOYMENTS = Path(__file__).parents[2] / "deployments"


class SimulatedHome:
    """See Home. ``images`` is a folder of OCI archives; without it, installed commands are run."""

    def __init__(self, root: Path, images: Path | None = None) -> None:
        self._root, self._images = root, images
        self._kubelet = SimulatedKubelet(root / "kubelet")
        self._kubelet.start()
        self._pods: dict[str, Pod] = {}
        self._logs: list[Path] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])

    def install(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._start()

    def _start(self) -> None:
        manifests = render(DEPLOYMENTS / self._plugin.name)
        for manifest in manifests:
            if manifest["kind"] == "ConfigMap" and self._plugin.config:
                manifest["data"] = {"config.yaml": self._plugin.config}
        log = self._root / f"plugin-{len(self._logs)}.log"
        self._logs.append(log)
        words, environment = self._words(manifests)
        if self._images is None:
            with log.open("w") as file:
                self._process = subprocess.Popen(words, env=environment, stderr=file, text=True)
        else:
            self._process = self._container(manifests, log)
        eventually(self._is_ready)

    def _host(self) -> dict[str, Path]:
        """Return what stands for directories of a node."""
        return {
            "/var/lib/kubelet/device-plugins": self._kubelet.plugin_dir,
            "/var/lib/kubelet/plugins_registry": self._kubelet.registry_dir,
            "/var/lib/kubelet/pod-resources": self._kubelet.pod_resources_socket.parent,
            **({self._plugin.files: self._files()} if self._plugin.files else {}),
        }

    def _files(self) -> Path:
        path = self._root / "files"
        path.mkdir(exist_ok=True)
        return path

    def _words(self, manifests: list[Manifest]) -> tuple[list[str], dict[str, str]]:
        """Return what to run here: the manifest's command, with the places that there are here."""
        (daemon_set,) = (one for one in manifests if one["kind"] == "DaemonSet")
        (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
        flags = [*container.get("args", ())]
        flags += [
            "--plugin-dir=/var/lib/kubelet/device-plugins",
            "--registry-dir=/var/lib/kubelet/plugins_registry",
            "--pod-resources-socket=/var/lib/kubelet/pod-resources/kubelet.sock",
        ]
        for place, here in self._host().items():
            flags = [flag.replace(f"={place}", f"={here}") for flag in flags]
        for manifest in manifests:
            if manifest["kind"] == "ConfigMap":
                (self._root / "config.yaml").write_text(manifest["data"]["config.yaml"])
                flags.append(f"--config={self._root / 'config.yaml'}")
        environment = {one["name"]: one.get("value", "node-1") for one in container["env"]}
        environment["DP_HTTP_ADDRESS"] = f"127.0.0.1:{self._port}"
        return [str(BIN / f"{self._plugin.name}-device-plugin"), *flags], environment

    def _container(self, manifests: list[Manifest], log: Path) -> subprocess.Popen[str]:
        assert self._images is not None
        (path,) = self._images.glob(f"{self._plugin.name}-device-plugin-*.tar")
        archive = Archive(path)
        root = self._root / "image"
        if not root.exists():
            archive.extract(root)
        made = Container(root, archive.config, manifests, self._host(), self._root / "config")
        listen = {"DP_HTTP_ADDRESS": f"127.0.0.1:{self._port}"}
        with log.open("w") as file:
            return made.start(environment=listen, log=file)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._logs[-1].read_text()
        try:
            return "ok" in self._get("/readyz")
        except URLError:
            return False

    def _get(self, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def wait_allocatable(self, resource: str, count: int) -> None:
        def has_them() -> bool:
            self._kubelet.tick()
            return self._kubelet.allocatable(resource) == count

        eventually(has_them)

    def add_file(self, name: str) -> None:
        (self._files() / name).touch()

    def remove_file(self, name: str) -> None:
        (self._files() / name).unlink()

    def run(self, name: str, resource: str, count: int) -> Given:
        pod = self._pods[name] = Pod.of(name, main={resource: count})
        outcome = self._kubelet.run(pod)
        assert outcome, outcome.message
        options = self._kubelet.run_options(pod, "main")
        if options is None:
            return Given()
        return Given(options.envs, frozenset(node.container_path for node in options.devices))

    def run_example(self, pod: Mapping[str, Any]) -> str:
        (container,) = pod["spec"]["containers"]
        ((resource, count),) = container["resources"]["limits"].items()
        given = self.run(pod["metadata"]["name"], resource, int(count))
        words = container["command"]
        environment = {"PATH": os.defpath, **given.envs}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        self.delete(pod["metadata"]["name"])
        return done.stdout

    def is_running(self, name: str) -> bool:
        return self._kubelet.pod(self._pods[name]).phase == "Running"

    def delete(self, name: str) -> None:
        self._kubelet.delete(self._pods.pop(name))

    def refusal(self, resource: str, count: int) -> str:
        outcome = self._kubelet.admit(Pod.of("greedy", main={resource: count}))
        assert not outcome
        return outcome.message

    def metrics(self) -> str:
        return self._get("/metrics")

    def restart_plugin(self) -> None:
        self._process.kill()
        self._process.wait()
        self._kubelet.wait(lambda: not self._kubelet.registered, what="the kubelet to notice")
        self._start()

    def restart_kubelet(self) -> None:
        self._kubelet.restart()

    def uninstall(self) -> None:
        inside = self._process.pid if self._images is None else first_process(self._process)
        subprocess.run(["kill", f"-{signal.SIGTERM:d}", str(inside)], check=True)
        assert 0 == self._process.wait(10)
        left = [path.name for path in self._kubelet.plugin_dir.glob("*.sock")]
        assert ["kubelet.sock"] == left

    def collect(self, folder: Path) -> None:
        for log in self._logs:
            (folder / log.name).write_text(log.read_text())
        state: Any = {"node": self._kubelet.node.capacity, "crashes": [*self._kubelet.crashes]}
        (folder / "kubelet.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(state))))

    def close(self) -> None:
        if hasattr(self, "_process") and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._kubelet.stop()
        assert [] == list(self._kubelet.crashes)
