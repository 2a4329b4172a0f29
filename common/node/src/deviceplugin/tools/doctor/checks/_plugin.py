"""A plugin itself: what it reports that it lacks, and the file that several plugins share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.settings import Settings
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.tools._devices_page import Credentials, NoAnswerError, RefusedError, ask, page_of
from deviceplugin.tools.agent import _sections
from deviceplugin.tools.agent._sections import Refused, attribute, named_in, places_in, settings_of

_MOST: Final = 64 << 20
"""Most bytes of an answer."""
_OFF: Final = "off"
_ENDS: Final = "device-plugins exits with status 2, and its pod restarts for ever."


def shortfalls(node: Node) -> Iterator[Finding]:
    address = node.settings.http_address
    if node.root != Path("/") or address == _OFF:
        yield ok("the running plugin", "is asked only where it runs, and where it serves HTTP")
        return
    host, _, port = address.rpartition(":")
    settings = node.settings
    scheme = "https" if settings.http_cert_file else "http"
    page = page_of(f"{scheme}://{host or '127.0.0.1'}:{port}")
    # Its own certificate is known here, whatever name is in it.
    credentials = Credentials(settings.http_token_file, settings.http_cert_file, is_named=False)
    try:
        found = ask(page, _shortfalls, node.timeout, credentials, _MOST)
    except RefusedError as error:
        means = "what the plugin should offer and does not is not known."
        do = "set DP_HTTP_TOKEN_FILE and DP_HTTP_CERT_FILE as for the plugin."
        yield warning(page, str(error), means=means, do=do)
        return
    except NoAnswerError:
        yield ok(page, "no plugin answers here")
        return
    for text in found:
        means, do = (
            "the plugin offers less than it should.",
            "do as it says; the plugin finds out by itself.",
        )
        yield warning(page, text, means=means, do=do)
    if not found:
        yield ok(page, "the plugin offers all that it should")


def _shortfalls(page: Any) -> list[str]:
    found = page.get("shortfalls")
    return [str(text) for text in found] if isinstance(found, list) else []


def sections(node: Node) -> Iterator[Finding]:
    """The sections of a configuration file that several plugins share."""
    path = node.config
    if path is None or path.is_dir():
        yield ok("configuration", "no file is named")
        return
    try:
        shared = places_in(path, _sections.names())
        names = named_in(path, _sections.names()) if shared else []
    except ConfigError as error:
        yield failure(path, _said(error, path), means=_ENDS, do="correct it.")
        return
    if names:
        yield from _of_sections(path, names)
    else:
        yield ok(path, "is the file of one plugin")


def _of_sections(path: Path, names: list[str]) -> Iterator[Finding]:
    kinds: dict[str, type[Settings]] = {}
    for name in names:
        try:
            kinds[name] = _sections.hosted(name).settings
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
