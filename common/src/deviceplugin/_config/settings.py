"""Settings: what they are, and reading them from flags, environment and file.

A settings class is a frozen dataclass. Each field is a flag (``--plugin-dir``), an environment
variable (``DP_PLUGIN_DIR``) and a key of the file (``plugin-dir``); a flag wins over the
environment, that over the file, and that over the default. The text below a field is its help.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from deviceplugin._config import loading
from deviceplugin._config import values as _values
from deviceplugin._config.files import read_file
from deviceplugin._config.names import key
from deviceplugin.errors import ConfigError
from deviceplugin.proto.v1beta1 import PLUGIN_DIR


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every plugin can be told. Derive a frozen dataclass from it to add your own."""

    plugin_dir: Path = Path(PLUGIN_DIR)
    """Directory of the kubelet's socket and the plugins'. Fixed in the kubelet itself: change it
    only where the directory is mounted elsewhere, or for a simulated kubelet."""
    registration: Literal["auto", "self", "watcher"] = "auto"
    """How the kubelet learns of the plugin: by being told on its own socket (self), or by finding
    the plugin's in registry-dir (watcher). auto is self where plugin-dir exists, because that is
    quicker after a kubelet restart, and watcher where only registry-dir does."""
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    """Directory in which the kubelet looks for plugins by itself; follows its --root-dir."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Socket that tells which pods hold which devices. Used if it exists: then it is known
    who holds a device, and one that vanishes is forgotten as soon as nobody does."""
    pod_resources_interval: timedelta = timedelta(seconds=30)
    """Time between looks at which pods hold devices, for metrics, the page and released(). How late
    the end of a pod is noticed; a start is a second after its allocation. No shorter than needed:
    all that ask a kubelet share its limit of 100 calls a second."""
    http_address: str = dataclasses.field(
        default="127.0.0.1:9494", metadata={"check": _values.check_address}
    )
    """Where to serve /metrics, /healthz, /readyz, /devices and the page /: host:port, :port for
    all addresses of the machine, or off. Only this machine by default, because there is no access
    control."""
    discovery_interval: timedelta = timedelta(seconds=30)
    """Time between discoveries that nothing called for. Events make most changes known at once;
    this catches the rest, and is what a node pays for while nothing happens. A third of
    discovery-deadline at most, so raise that too."""
    discovery_deadline: timedelta = timedelta(minutes=2)
    """Devices that could not be looked at for this long are reported unhealthy. Several
    intervals, so that a single failure disturbs nobody."""
    vanished_grace: timedelta = timedelta(minutes=1)
    """Time that a vanished device stays listed, as unhealthy, at the least. Covers an allocation
    under way: forgetting a device in the middle of one can crash the kubelet."""
    vanished_retention: timedelta = timedelta(hours=24)
    """The same where the pod resources socket does not exist, so that it cannot be known whether a
    pod still holds the device."""
    poll_interval: timedelta = timedelta(seconds=5)
    """Time between looks at files and sockets that should have caused an event. A safety net."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged. Info is for changes of state only."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Form of the log: auto is text on a terminal and JSON elsewhere."""

    @staticmethod
    def read_file(path: Path) -> Mapping[str, Any]:
        """Return the mapping in a TOML, JSON or YAML file.

        For a file of a plugin's own. Override it to read the file of the settings in another way.

        Raises:
            ConfigError: The file cannot be read, is something else, or gives a key twice.
        """
        return read_file(path)

    @classmethod
    def problem(cls, name: str, value: object) -> str:
        """Return what is wrong with ``value`` for the key ``name`` of a file, or an empty text.

        For a ``read_file`` of your own that can say in which line it stands.
        """
        known = {key(field): field for field in fields(cls)}
        if name not in known:
            return f"unknown key: {loading.suggestion(name, known)}"
        try:
            loading.value_of(known[name], typing.get_type_hints(cls)[known[name].name], value)
        except ValueError as error:
            return f"{'nothing' if value is None else repr(value)} {error}"
        except ConfigError as error:
            return str(error)
        return ""

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return the settings that a file makes by itself, without flags and environment.

        Raises:
            ConfigError: All that is wrong, as at the start of the process.
        """
        return loading.load(cls, flags={}, file=path, environ={})

    def read_again(self) -> Self:
        """Return what the same flags, the environment and the same file say now.

        It is what a restart of the process would use. Settings that were made in code stay as
        they are.

        Raises:
            ConfigError: All that would keep the process from starting.
        """
        again: Callable[[], Self] = vars(self).get("_again", lambda: self)
        return again()


def dump(settings: Settings) -> dict[str, Any]:
    """Return all settings by key, as one would write them into a file."""
    return {key(field): _values.write(getattr(settings, field.name)) for field in fields(settings)}
