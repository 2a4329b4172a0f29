"""What the common tests need of a home where plugins run: a simulated kubelet, or a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Plugin:
    """What is installed: a folder of deployments/, files on the node, a configuration."""

    name: str
    resource: str
    """A pattern, if the name depends on the hardware."""
    devices: int | None
    """The number of devices after the installation; None if it depends on the hardware."""
    files: str = ""
    """The plugin's directory on the node, if its devices are files."""
    config: str = ""
    """The file config.yaml of its ConfigMap, which replaces that of the folder."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """More files of the ConfigMap, where it has ``config``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables of its container."""
    components: tuple[str, ...] = ()
    """Components of deployments/components, in addition to those of the deployment."""
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Arguments of the containers that components bring, by the containers' names."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """Variables of the pods that are run for it."""


@dataclass(frozen=True)
class Given:
    """What a container saw."""

    envs: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    mounts: Mapping[str, bool] = field(default_factory=dict)
    """Path in the container, and whether it is read-only."""
    annotations: Mapping[str, str] | None = None
    """Annotations of the container; None if the home cannot see them."""


LOOK = (
    # The variables as they were set: a shell drops those with hyphens in their names.
    "tr '\\0' '\\n' < /proc/1/environ; echo; find /dev -type c -o -type b; echo; cat /proc/mounts"
)
"""A shell command that prints what a container got."""


def seen(said: str, annotations: Mapping[str, str] | None = None) -> Given:
    """Parse the output of ``LOOK``."""
    envs, nodes, mounts = (part.splitlines() for part in said.split("\n\n", 2))
    fields = [line.split() for line in mounts]
    return Given(
        dict(line.split("=", 1) for line in envs if "=" in line),
        frozenset(nodes),
        {place: "ro" in options.split(",") for _, place, _, options, *_ in fields},
        annotations,
    )


class NotStartedError(Exception):
    """A container was not started, and why."""


class Runs(Protocol):
    """What a home has in common with the place where its plugin and its pods run."""

    def need_containers(self) -> None:
        """Skip the test if pods are not containers here."""

    def need_cdi(self) -> None:
        """Skip the test unless CDI specifications are known to have an effect."""

    def execute(self, name: str, command: str) -> str:
        """Run a command by the shell of a pod, and return what it prints, however it ends."""

    def is_running(self, name: str) -> bool:
        """Return whether a pod that was run still runs."""

    def delete(self, name: str) -> None:
        """Delete a pod."""

    def collect(self, folder: Path) -> None:
        """Write logs and events to ``folder``, for the analysis of a failure."""

    def close(self) -> None:
        """Remove everything that is left, even after a failure."""


class Home(Runs, Protocol):
    """A node with a plugin on it. Every method waits for its result, or fails."""

    def install(self, plugin: Plugin) -> None:
        """Apply the deployment, and wait until the plugin is ready."""

    def offer(self, plugin: Plugin) -> tuple[str, int]:
        """Wait until the node has devices of the plugin; return the resource and their number.

        Skip the test if the hardware is missing.
        """

    def wait_allocatable(self, resource: str, count: int) -> None:
        """Wait until the node has this number."""

    def add_file(self, name: str) -> None:
        """Make a file in the plugin's directory on the node."""

    def remove_file(self, name: str) -> None:
        """Delete it."""

    def run(self, name: str, resource: str, count: int) -> Given:
        """Run a pod that asks for devices, and keep it."""

    def run_example(self, pod: Mapping[str, Any]) -> str:
        """Run a pod of demo/examples/ to its end, and return what it prints.

        Raise ``NotStartedError`` if the runtime does not start its container.
        """

    def refusal(self, resource: str, count: int) -> str:
        """Return why a pod with this request does not run."""

    def metrics(self) -> str:
        """Return what the plugin serves at /metrics."""

    def restart_plugin(self) -> None:
        """End the plugin's pod without a warning, and wait for the next one."""

    @property
    def may_restart_kubelet(self) -> bool:
        """Whether the kubelet may be restarted."""

    def restart_kubelet(self) -> None:
        """Restart it."""

    def uninstall(self) -> None:
        """Delete the deployment, and wait until nothing of it is left."""


def offered(home: Home, plugin: Plugin) -> tuple[str, int]:
    """Have two devices where they are files; return the resource and the number of devices."""
    for name in ("gary", "gina") if plugin.files else ():
        home.add_file(name)
    return home.offer(plugin)
