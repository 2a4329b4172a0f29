"""A real API server on an etcd of its own, for what a stand-in cannot show: accounts and policies.

Runs the programs that the variables KUBE_APISERVER and ETCD name. There are no nodes, controllers
or kubelets behind it, but for what a test starts by ``RealApiServer.run``.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from deviceplugin.apiserver import Account, ApiServer, ApiServerError
from deviceplugin_testing.conformance._subject import free_port
from patience import eventually

_ADMIN = "admin-token"
_RANGE = "198.51.100.0/24"  # of a documentation network, for services that there are none of


def why_not(environ: Mapping[str, str] = os.environ, more: Sequence[str] = ()) -> str:
    """Return why there is no real API server here, or not ``more`` programs, if so."""
    names = ("KUBE_APISERVER", "ETCD", *more)
    missing = [name for name in names if not _program(environ.get(name))]
    return f"no {' and no '.join(missing)}" if missing else ""


def _program(name: str | None) -> str | None:
    return shutil.which(name) if name else None


class RealApiServer:
    """An API server at ``url``; its files are below ``root``."""

    def __init__(
        self, root: Path, url: str, words: list[str], store: list[str], stack: ExitStack
    ) -> None:
        self.root = root
        self.url = url
        self._words = words
        self._stack = stack
        self._store = store
        self._etcd = self.run("etcd", store)
        self.admin = self.client("admin", _ADMIN)
        self._process = self.run("apiserver", words)

    def client(self, name: str, token: str) -> ApiServer:
        """Return one who has ``token``."""
        return ApiServer(self.url, Account(self.account(name, token)), timeout=30)

    def account(self, name: str, token: str) -> Path:
        """Return a folder like that of a pod's account."""
        folder = self.root / f"account-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token)
        shutil.copyfile(self.root / "tls.crt", folder / "ca.crt")
        return folder

    def run(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Run a program until the end of the server; its output is a file below ``root``."""
        return _start(self._stack, self.root / f"{name}.log", words)

    def kubeconfig(self) -> Path:
        """Return a file with which components of Kubernetes have all rights."""
        cluster = {"server": self.url, "certificate-authority": str(self.root / "tls.crt")}
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "a", "user": {"token": _ADMIN}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        path = self.root / "kubeconfig"
        path.write_text(json.dumps(found))
        return path

    def stop(self) -> None:
        """End the API server; what it stores stays."""
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        """Start it again."""
        self._process = self.run("apiserver", self._words)
        eventually(self.is_ready, "the API server", timeout=120)

    def back_up(self) -> None:
        """Keep what is stored; the server restarts."""
        self._without_store(shutil.copytree)

    def restore(self) -> None:
        """Have what was kept be what is stored; the server restarts."""

        def put_back(etcd: Path, kept: Path) -> None:
            shutil.rmtree(etcd)
            kept.rename(etcd)

        self._without_store(put_back)

    def _without_store(self, act: Callable[[Path, Path], object]) -> None:
        self.stop()
        self._etcd.terminate()
        self._etcd.wait()
        act(self.root / "etcd", self.root / "kept")
        self._etcd = self.run("etcd", self._store)
        self.start()

    def token_of_pod(self, namespace: str, account: str, pod: str, node: str) -> str:
        """Return the token that a new pod of ``account`` on ``node`` would have."""
        spec = {
            "nodeName": node,
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none"}],
        }
        metadata = {"name": pod}
        item = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        made = self.admin.create(f"/api/v1/namespaces/{namespace}/pods", item)
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": made["metadata"]["uid"]}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        asked = {"spec": {"boundObjectRef": bound}}
        return str(self.admin.create(path, asked)["status"]["token"])

    def create(self, manifests: list[dict[str, Any]]) -> None:
        """Create what there is a place for: no kinds of operators."""
        for one in manifests:
            group, _, version = one["apiVersion"].rpartition("/")
            place = f"/apis/{group}/{version}" if group else f"/api/{version}"
            space = one["metadata"].get("namespace")
            plural = f"{one['kind'].lower()}s".replace("ys", "ies")
            scope = f"/namespaces/{space}" if space else ""
            self.admin.create(f"{place}{scope}/{plural}", one)

    def is_ready(self) -> bool:
        """Return whether it answers, and has made what it makes by itself."""
        try:
            self.admin.get("/api/v1/namespaces/default")
            self.admin.get("/apis/apps/v1/deployments")
        except ApiServerError:
            return False
        return True


@contextmanager
def running(root: Path, *flags: str) -> Iterator[RealApiServer]:
    """Run one with its files below ``root``, which is empty."""
    etcd, peer, port = free_ports(3)
    (root / "tokens.csv").write_text(f"{_ADMIN},admin,admin,system:masters\n")
    _make_keys(root)
    store, url = f"http://127.0.0.1:{etcd}", f"https://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = [*_apiserver(root, store, url, port), *flags]
        own = _etcd(root, store, f"http://127.0.0.1:{peer}")
        server = RealApiServer(root, url, words, own, stack)
        eventually(server.is_ready, f"the API server; see {root}", timeout=120)
        yield server


def _etcd(root: Path, store: str, peer: str) -> list[str]:
    return [
        os.environ["ETCD"],
        f"--data-dir={root / 'etcd'}",
        f"--listen-client-urls={store}",
        f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def _apiserver(root: Path, store: str, url: str, port: int) -> list[str]:
    return [
        os.environ["KUBE_APISERVER"],
        f"--etcd-servers={store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={root}",
        f"--tls-cert-file={root / 'tls.crt'}",
        f"--tls-private-key-file={root / 'tls.key'}",
        f"--token-auth-file={root / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={root / 'tls.key'}",
        f"--service-account-signing-key-file={root / 'tls.key'}",
        f"--service-account-issuer={url}",
        f"--service-cluster-ip-range={_RANGE}",
        "--advertise-address=198.51.100.1",
        "--endpoint-reconciler-type=none",
    ]


def _start(stack: ExitStack, log: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    output = stack.enter_context(log.open("ab"))
    process = stack.enter_context(subprocess.Popen(words, stdout=output, stderr=output))
    stack.callback(process.kill)  # its data are thrown away
    return process


def _make_keys(root: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(root / "tls.key"), "-out", str(root / "tls.crt")]
    subprocess.run(words, check=True, capture_output=True)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
