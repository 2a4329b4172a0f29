"""What ``deviceplugin doctor`` checks of a configuration file that several plugins share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin._config.settings import Settings
from deviceplugin.checks import Finding, Node, failure, ok
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.tools.agent import _installed
from deviceplugin.tools.agent._sections import (
    Refused,
    attribute,
    named_in,
    places_in,
    settings_of,
)

_ENDS: Final = "device-plugins exits with status 2, and its pod restarts for ever."


def look(node: Node) -> Iterator[Finding]:
    """The sections of a configuration file that several plugins share."""
    path = node.config
    if path is None or path.is_dir():
        yield ok("configuration", "no file is named")
        return
    try:
        shared = places_in(path, _installed.names())
        names = named_in(path, _installed.names()) if shared else []
    except ConfigError as error:
        yield failure(path, _said(error, path), means=_ENDS, do="correct it.")
        return
    if names:
        yield from _sections(path, names)
    else:
        yield ok(path, "is the file of one plugin")


def _sections(path: Path, names: list[str]) -> Iterator[Finding]:
    kinds: dict[str, type[Settings]] = {}
    for name in names:
        try:
            kinds[name] = _installed.hosted(name).settings
        except DevicePluginError as error:
            do = "install its package with all its dependencies."
            yield _unusable(path, name, str(error), do)
    others = {*names} - kinds.keys()
    try:
        settings = settings_of(kinds, others).of_file(path)
    except ConfigError as error:
        yield failure(path, _said(error, path), means=_ENDS, do="correct what stands at the top.")
        return
    for name in kinds:
        section = getattr(settings, attribute(name))
        if isinstance(section, Refused):
            do = "correct the section: the plugin starts without a restart of the process."
            yield _unusable(path, name, _said(ConfigError(section.reason), path), do)
        else:
            yield ok(f"{path}: {name}", "valid")


def _unusable(path: Path, name: str, found: str, do: str) -> Finding:
    means = f"{name} advertises nothing, or continues with older settings; the others run."
    return failure(f"{path}: {name}", found, means=means, do=do)


def _said(error: ConfigError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ").replace(f"{path}:", "line ")
