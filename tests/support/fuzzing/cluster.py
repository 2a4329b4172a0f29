"""What an API server, its credentials, and who may write objects there can send."""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from deviceplugin.apiserver import ApiServer, ApiServerError, Watch
from deviceplugin.apiserver._client import Page, Query
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig._file import connection
from deviceplugin_cli.kubeconfig._user import ExecPlugin
from deviceplugin_operator.crd import specification
from deviceplugin_operator.rollout import desired
from fuzzing.samples import JSON, YAML, Sample, seeds
from fuzzing.target import Read, Target, reads_file, reads_object
from manifests.kustomize import ROOT

_BLOCK: Final = 50
_VERSION: Final = "client.authentication.k8s.io/v1"


class _Pieces(BytesIO):
    """An answer that comes in small pieces."""

    @override
    def read1(self, size: int | None = -1, /) -> bytes:
        del size
        return super().read1(_BLOCK)


class _Streams(ApiServer):
    """An API server that has listed nothing, and whose watch is ``content``."""

    content = b""

    @override
    def list(self, path: str, query: Query | None = None) -> Page:
        return Page([], "1")

    @override
    def stream(self, path: str, query: Query, silence: float) -> Any:
        return _Pieces(self.content)


@contextmanager
def _watch(_folder: Path) -> Iterator[Read]:
    api = _Streams("http://127.0.0.1:1")

    def read(sample: Sample) -> None:
        api.content = sample.content
        watch = Watch(api, "/api/v1/nodes", changed=lambda _objects: None)
        watch.begin(*watch.list())
        watch._follow()

    yield read


def _lines(document: Any) -> str:
    lines = document if isinstance(document, list) else [document]
    return "".join(f"{json.dumps(one)}\n" for one in lines)


def _event(kind: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "b", "resourceVersion": "7"}
    return {"type": kind, "object": {"metadata": metadata, **more}}


_EVENTS: Final = [
    *(_event("ADDED"), _event("MODIFIED"), _event("BOOKMARK"), _event("DELETED")),
    _event("ERROR", code=410, message="too old", reason="Expired", details={}),
]


def _credential(path: Path) -> None:
    ExecPlugin(["cat", str(path)], {"PATH": "/bin:/usr/bin"}, _VERSION).credential()


_STATUS: Final = {
    "token": "t",
    "clientCertificateData": "c",
    "clientKeyData": "k",
    "expirationTimestamp": "2030-01-01T00:00:00Z",
}
_CREDENTIAL: Final = {"apiVersion": _VERSION, "kind": "ExecCredential", "status": _STATUS}


def _kubeconfig(path: Path) -> None:
    _, user = connection([path], "")
    if user._plugin is None:
        with suppress(OSError, ValueError):  # as it says
            user.token()
        user.pool()


_PEM: Final = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nYQ==\n").decode()
_EXEC: Final = {
    "apiVersion": _VERSION,
    "command": "login",
    "args": ["a"],
    "env": [{"name": "A"}],
    "interactiveMode": "Never",
    "provideClusterInfo": True,
    "installHint": "get it",
}
_EXTENSION: Final = {"name": "client.authentication.k8s.io/exec", "extension": {"a": [1]}}


def _config(cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    server = {"server": "https://127.0.0.1:6443", "tls-server-name": "a", **cluster}
    return {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": server}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }


_KUBECONFIGS: Final = (
    _config({}, {"token": "t"}),
    _config({"certificate-authority-data": _PEM}, {}),
    _config({"insecure-skip-tls-verify": True}, {"tokenFile": "token"}),
    _config({}, {"client-certificate-data": _PEM, "client-key-data": _PEM}),
    _config({"extensions": [_EXTENSION]}, {"exec": _EXEC}),
)


def _spec(found: Any) -> None:
    """Read a ``DevicePlugin`` object, whose metadata the API server has made."""
    owner = {"metadata": {"name": "x", "uid": "u", "generation": 1}}
    wanted = specification.read({**owner, "spec": found})
    for variant in wanted.variants:
        made = desired.revision(wanted, variant)
        kept = desired.config_map(owner, variant.profile, made, "ns")
        assert made == desired.of_config_map(kept)
        desired.daemon_set(owner, variant.profile, made, "ns")


SPECS: Final = tuple(
    yaml.safe_load(path.read_text())["spec"]
    for path in sorted((ROOT / "deployments/operator/samples").glob("*.yaml"))
)


def _revision(found: Mapping[str, Any]) -> None:
    """Read a ConfigMap, of which the API server knows that ``data`` are strings."""
    data = {str(key): str(one) for key, one in found.items()}
    metadata = {"name": "dp-a.1", "labels": {"deviceplugin.dev/revision": "1"}}
    desired.of_config_map({"metadata": metadata, "data": data})


_DATA: Final = {"config.yaml": "a: 1", "pod.json": json.dumps({"spec": {}})}

TARGETS: Final = (
    Target(
        "watch",
        seeds(_lines(_EVENTS).encode()) + seeds(_EVENTS, forms=[JSON._replace(write=_lines)]),
        _watch,
        (ApiServerError,),
    ),
    Target("exec plugin", seeds(_CREDENTIAL), reads_file(_credential), (ConfigError,)),
    Target(
        "kubeconfig",
        seeds(*_KUBECONFIGS, forms=[YAML, JSON]),
        reads_file(_kubeconfig),
        (ConfigError,),
    ),
    Target("DevicePlugin", seeds(*SPECS), reads_object(_spec), (ConfigError,)),
    Target("revision", seeds(_DATA), reads_object(_revision), (ValueError,)),
)
