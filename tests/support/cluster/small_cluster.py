"""A stand-in for a cluster of one node, for the real kubectl.

An API server of our own (``api_server``) over objects in memory, a few controllers
(``controllers``) and a node (``node``): its devices are a simulated kubelet's, and its
pods are processes of this machine. Claims are allocated as in the simulated cluster. Manifests are
checked by Kubernetes' own schemas.

It is not Kubernetes. It has no users, roles, quotas, priorities, networks or network policies, no
server-side apply, no input for ``exec``, no startup and liveness probes; operators' kinds have no
schema; pods are not contained: no images, users, capabilities or namespaces of the kernel. That a
manifest passes here does not show that it passes there. That it fails here is worth looking at.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread

from cluster import controllers
from cluster.api_server import KubectlAnswering, server
from cluster.container import BIN, Image
from cluster.following import Shell
from cluster.kinds import NAMESPACE, Kind, Object
from cluster.node import ProcessNode
from cluster.store import Store

ROOT = Path(__file__).parents[3]
PLUGINS: Mapping[str, Image] = {
    f"{plugin}-device-plugin:0.1.0": [str(BIN / f"{plugin}-device-plugin")]
    for plugin in sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
}
"""The images of all plugins, and what each runs: the installed command. There is no hardware."""
SHELL: Mapping[str, Image] = {"busybox:1.37": []}
_CONFIG = """\
apiVersion: v1
kind: Config
current-context: stand-in
clusters: [{{name: stand-in, cluster: {{server: "{url}"}}}}]
contexts: [{{name: stand-in, context: {{cluster: stand-in, user: nobody}}}}]
users: [{{name: nobody, user: {{}}}}]
"""


class SmallCluster:
    """See the module. ``config`` is for KUBECONFIG."""

    def __init__(
        self, root: Path, images: Mapping[str, Image], environment: Mapping[str, str]
    ) -> None:
        self.store = Store()
        self.node = ProcessNode(root / "node", self.store, images, environment)
        self._server = server(KubectlAnswering(self.store, self.node))
        self.config = root / "config"
        self._stop = Event()
        self.failure: Exception | None = None
        self._thread = Thread(target=self._run, name="controllers")

    @property
    def url(self) -> str:
        """The address of the API server, once it is started."""
        return self._server.url

    @property
    def environment(self) -> dict[str, str]:
        """What kubectl needs, without anything of this machine's."""
        return {"KUBECONFIG": str(self.config), "HOME": str(self.config.parent)}

    def start(self) -> None:
        for name in ("default", "kube-system"):
            metadata: Object = {"name": name, "labels": {}}
            status = {"phase": "Active"}
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": status}
            self.store.create(NAMESPACE, made)
        self._server.start()
        self.node.start(self.url)
        self.config.write_text(_CONFIG.format(url=self._server.url))
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                before = self.store.version
                controllers.step(self.store)
                self.node.step()
                self.store.wait(before, 0.1)
        except Exception as error:
            # Nobody waits for what will never be.
            self.failure = error
            self.node.bell.unlink(missing_ok=True)
            self._server.stop()

    def stop(self) -> None:
        self._stop.set()
        self._server.stop()
        self._thread.join()
        self.node.stop()
        assert not self._server.crashes, repr(self._server.crashes)

    def kubectl(self, *words: str, text: str = "") -> str:
        """Return what kubectl prints; it fails a test if it fails."""
        done = self.try_kubectl(*words, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def reader(self, place: Path = ROOT, **environment: str) -> Shell:
        """Return a shell with kubectl, of who reads a page in a checkout or at another place."""
        return Shell(place, {"PATH": os.environ["PATH"], **self.environment, **environment})

    def try_kubectl(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *words],
            cwd=ROOT,
            input=text,
            env={"PATH": os.environ["PATH"], **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def there(self, kind: Kind) -> list[str]:
        """Return the names of all objects of a kind."""
        return [one["metadata"]["name"] for one in self.store.list(kind)]


OLDEST = 31
"""Older ones run commands in pods otherwise than by WebSocket."""
KUBECTL = shutil.which("kubectl")


@cache  # each worker asks once, and not once for each module that needs it
def why_not(kubectl: str | None = KUBECTL) -> str:
    """Return why kubectl cannot be run here, if so: it may not work, or be too old."""
    if kubectl is None:
        return "no kubectl"
    words = [kubectl, "version", "--client", "--output=json"]
    try:
        done = subprocess.run(words, capture_output=True, check=True, timeout=15)
        told = json.loads(done.stdout)["clientVersion"]
        # Some have a plus behind it, and who builds it without a stamp has none.
        minor = re.match(r"\d+", told["minor"])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        return f"a kubectl that does not work: {error}"
    if minor is None:
        return f"a kubectl that was built without its version ({told.get('gitVersion')})"
    return "" if int(minor[0]) >= OLDEST else f"kubectl is older than 1.{OLDEST}"


@contextmanager
def running(images: Mapping[str, Image], **environment: str) -> Iterator[SmallCluster]:
    """Run a cluster whose node has ``images``; its containers get the variables, too."""
    root = Path(tempfile.mkdtemp(prefix="c-"))
    (root / "node").mkdir()
    cluster = SmallCluster(root, images, environment)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
        if cluster.failure is not None:
            raise cluster.failure
    assert () == cluster.node.kubelet.crashes
