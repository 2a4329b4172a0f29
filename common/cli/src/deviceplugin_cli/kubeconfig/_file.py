"""Reading kubeconfig files, as kubectl does: which API server, and as whom."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.documents.faults import bounded, suggestion
from deviceplugin._config.documents.nodes import MalformedError, Node
from deviceplugin._config.documents.reading import content
from deviceplugin._config.documents.yaml_nodes import compose
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig._entry import Entry
from deviceplugin_cli.kubeconfig._exec_plugin import ExecPlugin
from deviceplugin_cli.kubeconfig._user import Server, User

_DEFAULT: Final = ".kube/config"
_LONGEST: Final = 16 * 1024**2
_LISTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PROXY: Final = "use kubectl proxy, and its address"


def files_of(environ: Mapping[str, str]) -> list[Path]:
    """Return the files that kubectl would read, whether they exist or not."""
    named = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return named or [Path(environ.get("HOME") or "/") / _DEFAULT]


def connection(files: Sequence[Path], context: str) -> tuple[str, User]:
    """Return the address of the API server of a context, and who asks it.

    Args:
        files: They must exist. Without any, those of the environment, which need not.
        context: Its name; empty for the current one.

    Raises:
        ConfigError: Something is missing, wrong or not supported.
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


def _user(cluster: Entry, user: Entry | None) -> User:
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
        plugin=ExecPlugin.of(plugin, cluster) if plugin else None,
    )


class _Merged:
    """What several files say. Of entries with one name the first counts, as for kubectl."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {name: {} for name in _LISTS}
        self._current = ""

    def add(self, path: Path) -> None:
        root = Entry(f"{path}", path.parent, _read(path))
        self._current = self._current or root.text("current-context")
        for name, part in _LISTS.items():
            for item in root.entries(name):
                self._entries[name].setdefault(item.required("name"), item.required_entry(part))

    def context(self, name: str) -> Entry:
        if not name and not self._current:
            known = suggestion("", sorted(self._entries["contexts"]))
            raise ConfigError(f"the kubeconfig has no current-context: {known}")
        return self.entry("contexts", name or self._current)

    def entry(self, kind: str, name: str) -> Entry:
        known = self._entries[kind]
        if name not in known:
            advice = suggestion(name, known)
            raise ConfigError(
                f"the kubeconfig has no {_LISTS[kind]} {bounded(repr(name))}: {advice}"
            )
        return known[name]


def _read(path: Path) -> dict[str, Any]:
    try:
        root = compose(content(path, _LONGEST).decode())
    except MalformedError as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise ConfigError(f"{place}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    except ImportError as error:
        raise ConfigError(f"{path}: needs PyYAML: install deviceplugin[cluster,yaml]") from error
    if root is None:
        return {}
    if root.kind != "mapping":
        raise ConfigError(f"{path}: is not a kubeconfig")
    return dict(_pairs(root))


def _pairs(node: Node) -> Iterator[tuple[str, Any]]:
    for key, value in node.pairs.items():
        yield key, _plain(value)


def _plain(node: Node) -> Any:
    """Return the value with scalars as they are written: a token of digits stays a string."""
    if node.kind == "mapping":
        return dict(_pairs(node))
    if node.kind == "list":
        return [_plain(item) for item in node.items]
    if node.kind in {"boolean", "nothing"}:
        return node.value
    return node.raw
