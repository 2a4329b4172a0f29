"""Asking the plugins of a node to hold devices, over the sockets below their plugin directory."""

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.hold_socket import SOCKET, ShortPath, read_line
from deviceplugin._app.holding import FOLDER
from deviceplugin._config.settings import Settings
from deviceplugin.errors import DevicePluginError

_MOST: Final = 64 << 20
TIMEOUT: Final = 60.0
"""Seconds: a release waits until the plugin has checked the device."""

Request = Mapping[str, Any]
Reply = Mapping[str, Any]


class NoPluginError(DevicePluginError):
    """No plugin answers."""


def folders(settings: Settings) -> Iterator[Path]:
    """Yield the folders of the plugins whose sockets can be seen here."""
    for directory in (settings.plugin_dir, settings.registry_dir):
        yield from sorted(path.parent for path in (directory / FOLDER).glob(f"*/{SOCKET}"))


def ask(folder: Path, request: Request, timeout: float = TIMEOUT) -> Reply:
    """Return what the plugin of ``folder`` answers; NoPluginError if it does not."""
    try:
        with ShortPath(folder) as short, socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(f"{short}/{SOCKET}")
            client.sendall(json.dumps(request).encode() + b"\n")
            reply = json.loads(read_line(client, timeout, _MOST))
    except (OSError, ValueError) as error:
        raise NoPluginError(f"{folder}: {error}") from error
    return reply if isinstance(reply, dict) else {"error": "is not an answer"}


def ask_all(settings: Settings, request: Request, *, only: str = "") -> Mapping[str, Reply]:
    """Return what each plugin answers, or the one called ``only``, by name.

    NoPluginError if none does.
    """
    replies: dict[str, Reply] = {}
    silent: list[str] = []
    for folder in folders(settings):
        if only not in {"", folder.name}:
            continue
        try:
            replies[folder.name] = ask(folder, request)
        except NoPluginError as error:
            silent.append(str(error))
    if not replies:
        where = settings.plugin_dir / FOLDER
        raise NoPluginError("; ".join(silent) or f"no plugin has a socket in {where}")
    return replies
