"""Settings: what they are, and reading them from flags, environment and file.

A settings class is a frozen dataclass. Each field is a flag (``--plugin-dir``), an environment
variable (``DP_PLUGIN_DIR``) and a key of the file (``plugin-dir``); a flag wins over the
environment, that over the file, and that over the default. The text below a field is its help.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from deviceplugin._config import loading, places
from deviceplugin._config import values as _values
from deviceplugin._config.names import key
from deviceplugin._config.places import Place
from deviceplugin.proto.v1beta1 import PLUGIN_DIR


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of every plugin. Derive a frozen dataclass from it to add your own."""

    plugin_dir: Path = Path(PLUGIN_DIR)
    """Directory of the kubelet's socket and the plugins'. Fixed in the kubelet itself: change it
    only where the directory is mounted elsewhere, or for a simulated kubelet."""
    registration: Literal["auto", "self", "watcher"] = "auto"
    """How the plugin is registered: it calls the kubelet (self), or the kubelet finds its socket in
    registry-dir (watcher). auto is self if plugin-dir exists, because that is quicker after a
    kubelet restart, and watcher if only registry-dir exists."""
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    """Directory in which the kubelet finds plugins by itself, below its --root-dir."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Socket of the kubelet's PodResources API, which says which pods hold which devices. Used if
    it exists; then a vanished device is forgotten as soon as no pod holds it."""
    pod_resources_interval: timedelta = timedelta(seconds=30)
    """Time between polls of which pods hold devices, for metrics, the page and released(). The end
    of a pod is noticed that late, its start a second after the allocation. Not shorter than needed:
    all clients of a kubelet share its limit of 100 calls a second."""
    http_address: str = dataclasses.field(
        default="127.0.0.1:9494", metadata={"check": _values.check_address}
    )
    """Where to serve /metrics, /healthz, /readyz, /devices and the page /: host:port, :port for
    all addresses of the machine, or off. Only this machine by default, because there is no access
    control."""
    discovery_interval: timedelta = timedelta(seconds=30)
    """Time between discoveries without a trigger. Events make most changes known at once; this
    catches the rest, and costs CPU time while nothing happens. A third of discovery-deadline at
    most, so raise that too."""
    discovery_deadline: timedelta = timedelta(minutes=2)
    """Devices that could not be discovered for this long are reported unhealthy. Several
    intervals, so that a single failure has no effect."""
    vanished_grace: timedelta = timedelta(minutes=1)
    """Time that a vanished device stays listed as unhealthy, at least. It covers an allocation in
    progress: forgetting a device then can crash the kubelet."""
    vanished_retention: timedelta = timedelta(hours=24)
    """The same if the pod resources socket does not exist, because it is unknown then whether a pod
    holds the device."""
    poll_interval: timedelta = timedelta(seconds=5)
    """Time between polls of files and sockets, in case an event was lost."""
    reload: Literal["on-change", "sighup"] = "on-change"
    """When configuration files are read again: by themselves when they say something else
    (on-change), or when the process is sent SIGHUP only (sighup). One that is not valid changes
    nothing."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged. Info is for changes of state only."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Form of the log: auto is text on a terminal and JSON elsewhere."""

    @classmethod
    def open_file(cls, path: Path) -> Place:
        """Return the outermost place of the configuration file that ``path`` names.

        Override it where a path names several files, such as a directory, to choose one.

        Raises:
            ConfigError: It cannot be read.
        """
        return places.of_file(path)

    @classmethod
    def from_file(cls, root: Place) -> Mapping[str, object]:
        """Return the values in the configuration file, by the keys of settings.

        ``root`` is its outermost place (`deviceplugin.kit.configuration`). A value is a place in
        it, which is then read as the field's type, or is taken as it is. Override it for a file
        whose keys are not those of the settings; note what is wrong at its place.
        """
        if root.kind != "mapping":
            raise root.fault("must have keys and values, as in 'log-level: debug'")
        return root.keys()

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return the settings that a file makes by itself, without flags and environment.

        Raises:
            ConfigError: All that is wrong, as at the start of the process.
        """
        return loading.load(cls, flags={}, file=path, environ={})


def dump(settings: Settings) -> dict[str, Any]:
    """Return all settings by key, as one would write them into a file."""
    return {key(field): written(field, getattr(settings, field.name)) for field in fields(settings)}


def written(field: "Field[Any]", value: Any) -> Any:
    """Return the value of a setting as one would write it into a file."""
    kind = field.metadata.get("kind")
    return kind.write(value) if kind else _values.write(value)


def files(settings: Settings) -> list[Path]:
    """Return the files besides the configuration file that the settings name to be read.

    They are fields with ``metadata={"watch": True}``.
    """
    named = [getattr(settings, one.name) for one in fields(settings) if one.metadata.get("watch")]
    return [path for path in named if isinstance(path, Path)]
