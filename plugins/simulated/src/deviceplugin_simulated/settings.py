"""The settings of the simulated plugin, including its classic variables."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import deviceplugin as dp
from deviceplugin.kit.configuration import RESOURCE_NAME
from deviceplugin_simulated.control import SUFFIX
from deviceplugin_simulated.resources import MAX_COUNT

_MAX_PATH: Final = 107
"""The most bytes of the path of a Unix socket."""
_KUBELETS: Final = "kubelet"
"""The kubelet's socket, whose name a plugin must not use."""


@dataclass(frozen=True, kw_only=True)
class SimulatedSettings(dp.Settings):
    """The settings of the simulated plugin."""

    resource: str = field(
        default="example.com/simple-device", metadata={"env": "RESOURCE_NAME", **RESOURCE_NAME}
    )
    """Resource name to advertise the devices under."""
    number_devices: int = field(
        default=2,
        metadata={"env": "NUMBER_DEVICES", "schema": {"minimum": 0, "maximum": MAX_COUNT}},
    )
    """Number of devices."""
    device_id_prefix: str = field(default="simple-device", metadata={"env": "DEVICE_ID_PREFIX"})
    """Prefix of ids: an id is this, node-name or else the name of the host, and the index,
    with hyphens between them."""
    annotation_prefix: str = field(default="", metadata={"env": "ANNOTATION_PREFIX"})
    """Prefix of the names of annotations; a hyphen and the device's id follow. No annotations if
    empty."""
    env_prefix: str = field(default="", metadata={"env": "ENV_PREFIX"})
    """Prefix of the names of variables in the container; an underscore and the device's id follow.
    The value is /dev/ and the index. No variables if empty."""
    device_file_prefix: str = field(default="", metadata={"env": "DEVICE_FILE_PREFIX"})
    """Prefix of the names of device nodes, on the host and in the container: /dev/, this, a hyphen
    and the index. No device nodes if empty."""
    value_form: Literal["index", "id"] = "index"
    """What identifies a device in values of variables and in paths of device nodes: its index, or
    its whole id."""
    plugin_name: str = field(
        default="simple-device-plugin",
        metadata={"env": "PLUGIN_NAME", "schema": {"pattern": "^[^/]+$"}},
    )
    """File name of a link to the socket of the first resource, without .sock."""
    devices: Path | None = field(default=None, metadata={"watch": True})
    """File with devices and what happens to them, as TOML, JSON or YAML. Its resources replace the
    one of the settings above."""
    profile: str = ""
    """Machine to simulate, such as 8-gpus."""
    seed: int | None = None
    """Seed of the random faults. The default is the file's seed."""
    control_socket: Path | None = None
    """Unix socket for the command ctl, which causes faults in the running plugin. Access to the
    socket is access to the command. None by default."""

    state_file: Path | None = Path("/run/deviceplugin-simulated/parts.json")
    """File with the parts that are made, if devices have any: they outlive the plugin, and end with
    the file. Its directory must not outlive a reboot."""

    def __post_init__(self) -> None:
        """Refuse what cannot be used: all errors, a line each."""
        problems = [f"{key} {value!r} {problem}" for key, value, problem in _problems(self)]
        if problems:
            raise dp.ConfigError("\n".join(problems))

    @property
    def node(self) -> str:
        """The node's name."""
        return self.node_name or socket.gethostname()


def _problems(settings: SimulatedSettings) -> Iterator[tuple[str, object, str]]:
    """Yield key, value and error of each invalid setting."""
    if not 0 <= settings.number_devices <= MAX_COUNT:
        yield "number-devices", settings.number_devices, f"is not between 0 and {MAX_COUNT}"
    if not settings.device_id_prefix:
        yield "device-id-prefix", "", "is empty: ids would begin with a hyphen"
    yield from _prefix_problems(settings)
    if problem := _socket_problem(settings):
        yield "plugin-name", settings.plugin_name, problem
    if settings.control_socket and (
        problem := _length_problem(Path(f"{settings.control_socket}{SUFFIX}"))
    ):
        yield "control-socket", str(settings.control_socket), problem


def _prefix_problems(settings: SimulatedSettings) -> Iterator[tuple[str, str, str]]:
    for key, value in (
        ("device-id-prefix", settings.device_id_prefix),
        ("node-name", settings.node_name),
        ("annotation-prefix", settings.annotation_prefix),
        ("env-prefix", settings.env_prefix),
        ("device-file-prefix", settings.device_file_prefix),
    ):
        if not value.isprintable() or " " in value:
            yield key, value, "has blanks or control characters"
    if "=" in settings.env_prefix:
        yield "env-prefix", settings.env_prefix, "cannot begin the name of a variable: it has a ="
    path = settings.device_file_prefix
    if path and {"", ".", ".."} & set(path.split("/")):
        yield "device-file-prefix", path, "is not a path below /dev"


def _socket_problem(settings: SimulatedSettings) -> str:
    name = settings.plugin_name
    if not name or "/" in name or not name.isprintable() or name == _KUBELETS:
        return "cannot be the name of a plugin's socket"
    return _length_problem(settings.plugin_dir / f"{name}.sock")


def _length_problem(path: Path) -> str:
    """Return why a Unix socket cannot be at ``path``, or an empty string."""
    length = len(os.fsencode(path))
    if length <= _MAX_PATH:
        return ""
    return f"is too long: its socket would have a path of {length} bytes, of at most {_MAX_PATH}"
