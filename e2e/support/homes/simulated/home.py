"""A simulated kubelet, with the plugin as in its deployment: a process, or a container."""

import json
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from containers.pod_config import NOTHING
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.simulator import Pod, RunOptions, SimulatedKubelet
from homes.case import cases
from homes.home import Given, Plugin
from homes.pretended_hardware import StandIn
from homes.simulated.place import Installation, Place
from manifests.kustomize import Manifest, overlay, render
from patience import eventually

KEEP = "trap exit TERM; sleep 3600 & wait"
"""What pods do."""


class SimulatedHome:
    """See Home. Everything runs in ``place``. ``cache`` keeps what is compiled."""

    def __init__(self, root: Path, place: Place, cache: Path) -> None:
        self._root, self._place, self._cache = root, place, cache
        self._kubelet = SimulatedKubelet(root / "kubelet")
        self._kubelet.start()
        self._pods: dict[str, Pod] = {}
        self._logs: list[Path] = []
        self._stand_in: StandIn | None = None
        self._listen = f"127.0.0.1:{free_port()}"

    def install(self, plugin: Plugin) -> None:
        self._plugin = plugin
        hardware = cases()[plugin.name].hardware
        if hardware is not None:
            self._stand_in = hardware(self._root / "hardware", self._cache)
        self._start()

    def _start(self) -> None:
        plugin = self._plugin
        manifests = render(overlay(self._root, plugin.name, *plugin.components))
        for manifest in manifests:
            if manifest["kind"] == "ConfigMap" and plugin.config:
                manifest["data"] = {"config.yaml": plugin.config}
            if manifest["kind"] == "DaemonSet":
                self._patch(manifest["spec"]["template"]["spec"])
        log = self._root / f"plugin-{len(self._logs)}.log"
        self._logs.append(log)
        self._place.start(Installation(plugin, manifests, self._host(manifests), self._listen, log))
        eventually(self._is_ready)

    def _patch(self, pod: dict[str, Any]) -> None:
        """Apply the changes of an overlay."""
        (container,) = pod["containers"]
        for name, value in self._plugin.environment.items():
            container["env"].append({"name": name, "value": value})
        if self._stand_in is not None:
            self._stand_in.show(pod)

    def _host(self, manifests: list[Manifest]) -> dict[str, Path]:
        """Return replacements of a node's directories, so that none of this machine is used."""
        known = {
            "/var/lib/kubelet/device-plugins": self._kubelet.plugin_dir,
            "/var/lib/kubelet/plugins_registry": self._kubelet.registry_dir,
            "/var/lib/kubelet/pod-resources": self._kubelet.pod_resources_socket.parent,
        }
        if self._plugin.files:
            known[self._plugin.files] = self._files()
        if self._stand_in is not None:
            known |= self._stand_in.host
        (daemon_set,) = (one for one in manifests if one["kind"] == "DaemonSet")
        for volume in daemon_set["spec"]["template"]["spec"]["volumes"]:
            host = volume.get("hostPath", {})
            if host.get("type") == "DirectoryOrCreate":
                known.setdefault(host["path"], self._root / "host" / host["path"].lstrip("/"))
        return known

    def _files(self) -> Path:
        path = self._root / "files"
        path.mkdir(exist_ok=True)
        return path

    def _is_ready(self) -> bool:
        assert self._place.is_alive(), self._logs[-1].read_text()
        try:
            return "ok" in self._get("/readyz")
        except URLError:
            return False

    def _get(self, path: str) -> str:
        with urlopen(f"http://{self._listen}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def offer(self, plugin: Plugin) -> tuple[str, int]:
        if plugin.devices is not None:
            self.wait_allocatable(plugin.resource, plugin.devices)
            return plugin.resource, plugin.devices
        found: dict[str, int] = {}

        def has_some() -> bool:
            self._kubelet.tick()
            names = [one for one in self._kubelet.registered if fnmatch(one, plugin.resource)]
            found.update((one, self._kubelet.allocatable(one)) for one in names)
            return any(found.values())

        try:
            eventually(has_some, timeout=10)  # which many machines never have
        except AssertionError:
            if self._stand_in is not None:
                raise
            pytest.skip(f"this machine has nothing for {plugin.resource}")
        return max(found.items())

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
        container = {
            "name": "main",
            "image": "busybox:1.37",
            "command": ["sh", "-c", KEEP],
            "env": [{"name": key, "value": text} for key, text in self._plugin.asks.items()],
        }
        manifest = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        return self._place.run_pod(manifest, self._admit(name, resource, count))

    def _admit(self, name: str, resource: str, count: int) -> RunOptions:
        pod = self._pods[name] = Pod.of(name, main={resource: count} if count else {})
        outcome = self._kubelet.run(pod)
        assert outcome, outcome.message
        return outcome.options["main"] or NOTHING

    def need_containers(self) -> None:
        self._place.need_containers()

    def need_cdi(self) -> None:
        self._place.need_cdi()

    def execute(self, name: str, command: str) -> str:
        return self._place.execute(name, command)

    def run_example(self, pod: Mapping[str, Any]) -> str:
        (container,) = pod["spec"]["containers"]
        ((resource, count),) = container["resources"]["limits"].items()
        options = self._admit(pod["metadata"]["name"], resource, int(count))
        said = self._place.run_to_end(pod, options)
        self.delete(pod["metadata"]["name"])
        return said

    def is_running(self, name: str) -> bool:
        phase = self._kubelet.pod(self._pods[name]).phase
        return phase == "Running" and self._place.is_running(name)

    def delete(self, name: str) -> None:
        self._place.delete(name)
        self._kubelet.delete(self._pods.pop(name))

    def refusal(self, resource: str, count: int) -> str:
        outcome = self._kubelet.admit(Pod.of("greedy", main={resource: count}))
        assert not outcome
        return outcome.message

    def metrics(self) -> str:
        return self._get("/metrics")

    def restart_plugin(self) -> None:
        self._place.kill()
        self._kubelet.wait(lambda: not self._kubelet.registered, what="the kubelet to notice")
        self._start()

    may_restart_kubelet = True

    def restart_kubelet(self) -> None:
        self._kubelet.restart()

    def uninstall(self) -> None:
        assert 0 == self._place.terminate()
        left = [path.name for path in self._kubelet.plugin_dir.glob("*.sock")]
        assert ["kubelet.sock"] == left

    def collect(self, folder: Path) -> None:
        for log in self._logs:
            if log.exists():
                (folder / log.name).write_text(log.read_text())
        state: Any = {"node": self._kubelet.node.capacity, "crashes": [*self._kubelet.crashes]}
        (folder / "kubelet.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(state))))
        self._place.collect(folder)

    def close(self) -> None:
        self._place.close()
        self._kubelet.stop()
        assert [] == list(self._kubelet.crashes)
