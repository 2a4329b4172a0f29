"""Asking the plugins of a node to hold devices, over the sockets below their plugin directory."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.hold_socket import SOCKET, ask
from deviceplugin._app.holding import FOLDER
from deviceplugin._config.settings import Settings
from deviceplugin.errors import DevicePluginError

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
            replies[folder.name] = ask(folder, request, TIMEOUT)
        except (OSError, ValueError) as error:
            silent.append(f"{folder}: {error}")
    if not replies:
        where = settings.plugin_dir / FOLDER
        raise NoPluginError("; ".join(silent) or f"no plugin has a socket in {where}")
    return replies
