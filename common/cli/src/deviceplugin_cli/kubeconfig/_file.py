"""Reading kubeconfig files, as kubectl does: which API server, and as whom."""

import base64
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from deviceplugin._config.documents.faults import bounded, printable, suggestion
from deviceplugin._config.documents.nodes import DocumentNode, MalformedError
from deviceplugin._config.documents.reading import content
from deviceplugin._config.documents.yaml_nodes import compose
from deviceplugin.apiserver._credentials import MOST_BYTES
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig._user import ExecPlugin, Server, User

_VERSIONS: Final = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
_MODES: Final = ("Never", "IfAvailable", "Always")
_DEFAULT: Final = ".kube/config"
_LONGEST: Final = 16 * 1024**2
_LISTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_T = TypeVar("_T")
_PROXY: Final = "use kubectl proxy, and its address"


class ConfigEntry:
    """A mapping at ``place``. Paths in it are relative to ``folder``.

    Every method raises ``ConfigError`` for what is not as it should be.
    """

    def __init__(self, place: str, folder: Path, values: Mapping[str, Any]) -> None:
        self._place = place
        self.folder = folder
        self._values = values

    def __str__(self) -> str:
        return self._place

    def _get(self, key: str, kind: type[_T], what: str) -> _T | None:
        value = self._values.get(key)
        if value is None or isinstance(value, kind):
            return value
        raise ConfigError(f"{self._place}: {key}: is not {what}")

    def _list(self, key: str, kind: type[_T], what: str) -> list[_T]:
        found = self._get(key, list, f"a list of {what}") or []
        if not all(isinstance(item, kind) for item in found):
            raise ConfigError(f"{self._place}: {key}: is not a list of {what}")
        return found

    def text(self, key: str) -> str:
        """Return the string at ``key``; an empty one if there is none."""
        return self._get(key, str, "a string") or ""

    def required(self, key: str) -> str:
        return self.text(key) or self._missing(key)

    def flag(self, key: str) -> bool:
        return self._get(key, bool, "true or false") or False

    def path(self, key: str) -> Path | None:
        name = self.text(key)
        return self.folder / name if name else None

    def strings(self, key: str) -> list[str]:
        return self._list(key, str, "strings")

    def entry(self, key: str) -> "ConfigEntry | None":
        value = self._get(key, dict, "a mapping")
        return None if value is None else ConfigEntry(f"{self._place}: {key}", self.folder, value)

    def required_entry(self, key: str) -> "ConfigEntry":
        return self.entry(key) or self._missing(key)

    def _missing(self, key: str) -> NoReturn:
        raise ConfigError(f"{self._place}: {key}: is missing")

    def entries(self, key: str) -> "list[ConfigEntry]":
        """Return the mappings in the list at ``key``, named by their ``name``."""
        found = self._list(key, dict, "mappings")
        names = [bounded(printable(str(one.get("name", n)))) for n, one in enumerate(found)]
        return [
            ConfigEntry(f"{self._place}: {key}[{name}]", self.folder, one)
            for name, one in zip(names, found, strict=True)
        ]

    def any(self, key: str) -> Any:
        return self._values.get(key)

    def pem(self, key: str) -> str:
        """Return certificates or a key: in base64 at ``KEY-data``, or in the file at ``KEY``."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode(data, validate=True).decode("ascii")
            except ValueError:
                raise ConfigError(f"{self._place}: {key}-data: is not base64 of a PEM") from None
        path = self.path(key)
        if path is None:
            return ""
        try:
            return content(path, MOST_BYTES).decode("ascii")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._place}: {key}: {error}") from error

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise ``ConfigError`` if one of the keys is there, with the reason."""
        for key, reason in reasons.items():
            if self._values.get(key):
                raise ConfigError(f"{self._place}: {key}: {reason}")


def files_of(environ: Mapping[str, str]) -> list[Path]:
    """Return the files that kubectl would read, whether they exist or not."""
    named = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return named or [Path(environ.get("HOME") or "/") / _DEFAULT]


def connection(files: Sequence[Path], context: str) -> tuple[str, User]:
    """Return the address of the API server of a context, or of the current one, and who asks it.

    The files must exist. Without any, they are those of the environment, which need not. What is
    missing, wrong or not supported raises ``ConfigError``.
    """
    merged = _Merged()
    given = list(files) or [path for path in files_of(os.environ) if path.exists()]
    if not given:
        looked = ", ".join(map(str, files_of(os.environ)))
        raise ConfigError(f"no kubeconfig: {looked} does not exist")
    for path in given:
        merged.add(path)
    chosen = merged.context(context)
    cluster = merged.entry("clusters", chosen.text("cluster"))
    user = chosen.text("user")
    return cluster.required("server"), _user(cluster, merged.entry("users", user) if user else None)


def _user(cluster: ConfigEntry, user: ConfigEntry | None) -> User:
    cluster.refuse({"proxy-url": f"is not supported: {_PROXY}"})
    server = Server(
        cluster.pem("certificate-authority"),
        cluster.text("tls-server-name"),
        verified=not cluster.flag("insecure-skip-tls-verify"),
    )
    if user is None:
        return User(server)
    user.refuse(
        {
            "auth-provider": "is not supported, and not by kubectl since 1.26: use exec",
            "username": "is not supported, and not by API servers since 1.19: use a token",
            "as": f"is not supported: {_PROXY}",
            "as-groups": f"is not supported: {_PROXY}",
        }
    )
    plugin = user.entry("exec")
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) != bool(key):
        raise ConfigError(f"{user}: client-certificate and client-key are only used together")
    return User(
        server,
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        certificate=certificate,
        key=key,
        plugin=exec_plugin(plugin, cluster) if plugin else None,
    )


def exec_plugin(entry: ConfigEntry, cluster: ConfigEntry) -> ExecPlugin:
    """Return the program of a user's ``exec``."""
    version, mode = entry.required("apiVersion"), entry.text("interactiveMode") or _MODES[1]
    if version not in _VERSIONS:
        raise ConfigError(
            f"{entry}: apiVersion: {bounded(repr(version))} is not one of {_VERSIONS}"
        )
    if mode not in _MODES:
        raise ConfigError(f"{entry}: interactiveMode: {bounded(repr(mode))} is not one of {_MODES}")
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not is_terminal:
        raise ConfigError(f"{entry}: interactiveMode: Always needs a terminal")
    interactive = is_terminal and mode != "Never"
    command = entry.required("command")
    if "/" in command:
        command = str(entry.folder / command)
    spec: dict[str, Any] = {"interactive": interactive}
    if entry.flag("provideClusterInfo"):
        spec["cluster"] = _described(cluster)
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    own = {one.required("name"): one.text("value") for one in entry.entries("env")}
    return ExecPlugin(
        [command, *entry.strings("args")],
        {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        version,
        interactive=interactive,
        hint=entry.text("installHint"),
    )


def _described(cluster: ConfigEntry) -> dict[str, Any]:
    """Return what a program may learn of the cluster."""
    keys = ("server", "tls-server-name", "certificate-authority-data", "insecure-skip-tls-verify")
    found = {key: cluster.any(key) for key in keys if cluster.any(key)}
    for extension in cluster.entries("extensions"):
        if extension.text("name") == "client.authentication.k8s.io/exec":
            found["config"] = extension.any("extension")
    return found


class _Merged:
    """What several files say. Of entries with one name the first counts, as for kubectl."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, ConfigEntry]] = {name: {} for name in _LISTS}
        self._current = ""

    def add(self, path: Path) -> None:
        root = ConfigEntry(f"{path}", path.parent, _read(path))
        self._current = self._current or root.text("current-context")
        for name, part in _LISTS.items():
            for item in root.entries(name):
                self._entries[name].setdefault(item.required("name"), item.required_entry(part))

    def context(self, name: str) -> ConfigEntry:
        if not name and not self._current:
            known = suggestion("", sorted(self._entries["contexts"]))
            raise ConfigError(f"the kubeconfig has no current-context: {known}")
        return self.entry("contexts", name or self._current)

    def entry(self, kind: str, name: str) -> ConfigEntry:
        known = self._entries[kind]
        if name not in known:
            advice = suggestion(name, known)
            raise ConfigError(
                f"the kubeconfig has no {_LISTS[kind]} {bounded(repr(name))}: {advice}"
            )
        return known[name]


def _read(path: Path) -> dict[str, Any]:
    try:
        root = compose(content(path, _LONGEST))
    except MalformedError as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise ConfigError(f"{place}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    if root is None:
        return {}
    if root.kind != "mapping":
        raise ConfigError(f"{path}: is not a kubeconfig")
    found: dict[str, Any] = _plain(root)
    return found


def _plain(node: DocumentNode) -> Any:
    """Return the value with scalars as they are written: a token of digits stays a string."""
    if node.kind == "mapping":
        return {key: _plain(value) for key, value in node.pairs.items()}
    if node.kind == "list":
        return [_plain(item) for item in node.items]
    if node.kind in {"boolean", "nothing"}:
        return node.value
    return node.raw
