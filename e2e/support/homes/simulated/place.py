"""What a simulated kubelet needs of a place where the plugin and pods run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deviceplugin_testing.simulator import RunOptions
from homes.home import Given, Plugin, Runs
from manifests.kustomize import Manifest


@dataclass(frozen=True)
class Installation:
    """A plugin to be started."""

    plugin: Plugin
    manifests: list[Manifest]
    host: Mapping[str, Path]
    """The replacements of the node's directories."""
    listen: str
    """Where it serves metrics and probes."""
    log: Path

    @property
    def pod(self) -> dict[str, Any]:
        """The pod of its DaemonSet: a manifest."""
        (daemon_set,) = (one for one in self.manifests if one["kind"] == "DaemonSet")
        template: dict[str, Any] = daemon_set["spec"]["template"]
        name = daemon_set["metadata"]["name"]
        return {**template, "metadata": {**template["metadata"], "name": name}}

    @property
    def configs(self) -> dict[str, dict[str, str]]:
        """Files of its ConfigMaps."""
        maps = (one for one in self.manifests if one["kind"] == "ConfigMap")
        return {one["metadata"]["name"]: one["data"] for one in maps}


class Place(Runs, Protocol):
    """One plugin at a time, and pods."""

    def start(self, installation: Installation) -> None:
        """Start the plugin."""

    def is_alive(self) -> bool:
        """Return whether it runs."""

    def kill(self) -> None:
        """End it without a warning."""

    def terminate(self) -> int:
        """Stop it, and return its exit status."""

    def run_pod(self, pod: Mapping[str, Any], options: RunOptions) -> Given:
        """Start a pod with one container, and return what it sees."""

    def run_to_end(self, pod: Mapping[str, Any], options: RunOptions) -> str:
        """Run a pod with one container until it succeeds, and return its output."""
