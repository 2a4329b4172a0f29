"""What the simulated plugin can be told, by its classic variables too."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import deviceplugin as dp
from deviceplugin_simulated.control_socket import SUFFIX
from deviceplugin_simulated.machine import MAX_COUNT

_MAX_PATH: Final = 107
"""Bytes that the path of a Unix socket can have."""
_KUBELETS: Final = "kubelet"
"""The name that no plugin's socket may have."""


@dataclass(frozen=True, kw_only=True)
class SimulatedSettings(dp.Settings):
    """What the simulated plugin can be told."""

    resource: str = field(default="example.com/simple-device", metadata={"env": "RESOURCE_NAME"})
    """Resource name to advertise the devices under."""
    number_devices: int = field(default=2, metadata={"env": "NUMBER_DEVICES"})
    """Number of devices."""
    device_id_prefix: str = field(default="simple-device", metadata={"env": "DEVICE_ID_PREFIX"})
    """What ids begin with: the id is this, node-name and the index, with hyphens between them."""
    node_name: str = field(default="", metadata={"env": "NODE_NAME"})
    """Name of the node, in ids; the name of the host where not given."""
    annotation_prefix: str = field(default="", metadata={"env": "ANNOTATION_PREFIX"})
    """What names of annotations begin with, a hyphen and the device's id follow; none if empty."""
    env_prefix: str = field(default="", metadata={"env": "ENV_PREFIX"})
    """What names of variables in the container begin with, an underscore and the device's id
    follow; the value is /dev/ and the index; none if empty."""
    device_file_prefix: str = field(default="", metadata={"env": "DEVICE_FILE_PREFIX"})
    """What names of device nodes begin with, the same on the host and in the container: /dev/,
    this, a hyphen and the index; none if empty."""
    value_form: Literal["index", "id"] = "index"
    """What stands for a device in values of variables and paths of device nodes: its index, or
    its whole id."""
    plugin_name: str = field(default="simple-device-plugin", metadata={"env": "PLUGIN_NAME"})
    """File name of the plugin's socket, without .sock. Further resources have names of their
    own."""
    devices: Path | None = field(default=None, metadata={"watch": True})
    """File with devices and what happens to them, as TOML, JSON or YAML. Its resources take the
    place of the one that the settings above describe."""
    profile: str = ""
    """Machine to look like, such as 8-gpus."""
    seed: int | None = None
    """What random faults are made from; the file's where not given."""
    control_socket: Path | None = None
    """Unix socket to be told faults on while running, by the command ctl. Whoever can open it can
    do so; none if not given."""

    def __post_init__(self) -> None:
        """Refuse what cannot be used.

        Raises:
            ConfigError: All of it, a line each, with key and value.
        """
        problems = [f"{key} {value!r} {problem}" for key, value, problem in _problems(self)]
        if problems:
            raise dp.ConfigError("\n".join(problems))

    @property
    def node(self) -> str:
        """The node's name."""
        return self.node_name or socket.gethostname()


def _problems(settings: SimulatedSettings) -> Iterator[tuple[str, object, str]]:
    """Yield key, value and what is wrong with it."""
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
        yield "device-file-prefix", path, "is no path below /dev"


def _socket_problem(settings: SimulatedSettings) -> str:
    name = settings.plugin_name
    if not name or "/" in name or not name.isprintable() or name == _KUBELETS:
        return "cannot be the name of a plugin's socket"
    return _length_problem(settings.plugin_dir / f"{name}.sock")


def _length_problem(path: Path) -> str:
    """Return why a Unix socket cannot be at ``path``, or an empty text."""
    length = len(os.fsencode(path))
    if length <= _MAX_PATH:
        return ""
    return f"is too long: its socket would have a path of {length} bytes, of at most {_MAX_PATH}"
