"""Many nodes behind a real API server, with real controllers and a real scheduler.

Nodes are objects; a thread plays their kubelets: a pod that is bound runs at once, its node has as
many devices as the pod's configuration says (``pods.as_configured``), and a node reports
its devices every second. It needs what ``PROGRAMS`` names, as variables, and root: the operator is
a process with the account of its deployment, in a mount namespace of its own.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml

from cluster.kinds import NODE_LABELS, Object
from cluster.real_api_server import RealApiServer
from cluster.real_api_server import running as api_server
from cluster.real_api_server import why_not as no_api_server
from deviceplugin.apiserver import ApiServer, ApiServerError, NotFoundError
from manifests.kustomize import CLUSTER_WIDE, render
from operators.fleet_cluster import SPACE
from operators.pods import Life, as_configured, is_ready, lived, mounted, node_condition, slice_of
from patience import eventually

ROOT = Path(__file__).parents[3]
PROGRAMS = ("KUBE_CONTROLLER_MANAGER", "KUBE_SCHEDULER")
OWNERS = "/apis/deviceplugin.dev/v1alpha1/deviceplugins"
SETS = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
CONFIG_MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CONTROLLERS = (
    "daemonset-controller",
    "garbage-collector-controller",
    "resourcequota-controller",
)
_AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


def why_not() -> str:
    """Return why there is none here, if so."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "needs root and unshare"
    return no_api_server(more=PROGRAMS)


@dataclass
class RealFleet:
    """See the module."""

    server: RealApiServer
    behave: Callable[[str, Mapping[str, Any]], Life] = as_configured
    replaced: list[str] = field(default_factory=list)
    """Nodes whose pods ended, in order."""
    most_away: int = 0
    """The most nodes that had a ready pod once and had none, at one time."""
    most_on_a_node: int = 0
    """The most pods that ran on a node at one time."""
    failure: Exception | None = None
    _stop: Event = field(default_factory=Event)
    _seen: set[str] = field(default_factory=set)
    _devices: dict[str, dict[str, str]] = field(default_factory=dict)
    _reported: dict[str, tuple[dict[str, str], float]] = field(default_factory=dict)
    _lives: dict[str, tuple[str, Life]] = field(default_factory=dict)

    # The cluster

    def add_nodes(self, count: int, size: int = 0) -> None:
        """Create nodes, each with ``size`` bytes of annotations, to be as large as real ones."""
        for number in range(count):
            name = f"node-{number:04}"
            labels = {**NODE_LABELS, "kubernetes.io/hostname": name}
            notes = {"padding": "x" * size} if size else {}
            metadata = {"name": name, "labels": labels, "annotations": notes}
            self.server.admin.create(
                NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            )
            self.server.admin.merge(f"{NODES}/{name}", {"spec": {"taints": None}})
            self._report(name, {"cpu": "8", "memory": "64Gi", "pods": "110"})

    def apply(self, name: str, **spec: Any) -> None:
        """Create an object, or replace its spec."""
        made = {
            "apiVersion": "deviceplugin.dev/v1alpha1",
            "kind": "DevicePlugin",
            "metadata": {"name": name},
            "spec": spec,
        }
        try:
            found = self.server.admin.get(f"{OWNERS}/{name}")
        except NotFoundError:
            self.server.admin.create(OWNERS, made)
        else:
            self.server.admin.replace(f"{OWNERS}/{name}", {**found, "spec": spec})

    def status(self, name: str) -> Object:
        found: Object = self.server.admin.get(f"{OWNERS}/{name}").get("status", {})
        return found

    def condition(self, name: str, kind: str = "Ready") -> tuple[str, str, str]:
        """Return status, reason and message of a condition of the current spec, or blanks."""
        found = self.server.admin.get(f"{OWNERS}/{name}")
        for one in found.get("status", {}).get("conditions", ()):
            if one["type"] == kind and one["observedGeneration"] == found["metadata"]["generation"]:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def is_ready(self, name: str) -> bool:
        return self.condition(name)[0] == "True"

    def wait(self, condition: Callable[[], object], timeout: float = 60) -> float:
        """Wait, and return how many seconds it took."""
        start = time.monotonic()
        eventually(lambda: not self.failure and condition(), timeout=timeout, every=0.05)
        return time.monotonic() - start

    def pods(self) -> dict[str, Object]:
        """Return the pods that are not about to end, by node."""
        return {
            one["spec"]["nodeName"]: one
            for one in self.server.admin.list(PODS).items
            if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
        }

    def uids(self) -> dict[str, str]:
        return {node: one["metadata"]["uid"] for node, one in self.pods().items()}

    def allocatable(self, node: str, resource: str) -> str:
        found = self.server.admin.get(f"{NODES}/{node}")["status"]["allocatable"]
        return str(found.get(resource, ""))

    def calls(self) -> list[Object]:
        """Return what the operator has asked the API server so far, by its audit log."""
        lines = (self.server.root / "audit.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if "deviceplugin-operator" in line]
        name = f"system:serviceaccount:{SPACE}:deviceplugin-operator"
        return [
            one
            for one in found
            if one["user"]["username"] == name and one["stage"] == "ResponseComplete"
        ]

    def forget_calls(self) -> None:
        """Begin the audit log anew."""
        (self.server.root / "audit.log").write_text("")

    # The kubelets

    def run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                with suppress(ApiServerError):  # it is away, or an object is gone by now
                    self._step()
        except Exception as error:
            self.failure = error
            raise

    def _step(self) -> None:
        pods = self.server.admin.list(PODS).items
        here = {one["metadata"]["name"] for one in pods}
        for name in self._lives.keys() - here:
            self._end(name)
        bound = [one for one in pods if one["spec"].get("nodeName")]
        running: dict[str, list[Object]] = {}
        for pod in bound:
            running.setdefault(pod["spec"]["nodeName"], []).append(pod)
        ready = {one["spec"]["nodeName"] for one in bound if is_ready(one)}
        self._seen |= ready
        self.most_away = max(self.most_away, len(self._seen - ready))
        self.most_on_a_node = max([self.most_on_a_node, *map(len, running.values())])
        for pod in bound:
            with suppress(NotFoundError):
                self._live(pod)
        self._report_all()

    def _live(self, pod: Object) -> None:
        name, path = pod["metadata"]["name"], f"{PODS}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            self.server.admin._ask("DELETE", path, body={"gracePeriodSeconds": 0})
            self._end(name)
        elif name not in self._lives:
            life = self.behave(pod["spec"]["nodeName"], yaml.safe_load(mounted(pod)))
            self._lives[name] = (pod["spec"]["nodeName"], life)
            self.server.admin.merge(
                f"{path}/status", {"status": lived(ready=life.ready, said=life.said)}
            )
            if life.ready:
                node = self._devices.setdefault(pod["spec"]["nodeName"], {})
                node[life.resource] = str(0 if life.driver else life.devices)
                self._publish(pod["spec"]["nodeName"], life)

    def _publish(self, node: str, life: Life) -> None:
        """Have the slices of a node be those of a plugin, which has none without DRA."""
        with suppress(NotFoundError):
            self.server.admin.delete(f"{SLICES}/{node}")
        if life.driver:
            self.server.admin.create(SLICES, slice_of(node, life))

    def _end(self, name: str) -> None:
        node, life = self._lives.pop(name, ("", Life()))
        if node:
            self.replaced.append(node)
            self._devices[node][life.resource] = "0"

    def _report_all(self) -> None:
        """Report devices as kubelets do: each second where something has changed lately."""
        now = time.time()
        for node, devices in self._devices.items():
            reported, since = self._reported.get(node, ({}, 0.0))
            if reported != devices:
                self._reported[node] = (dict(devices), now)
            elif now - since > 3 or now - since < 1:
                continue
            self._report(node, devices)

    def _report(self, node: str, amounts: Mapping[str, str]) -> None:
        conditions = [node_condition("Ready", "True")]
        change = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
        self.server.admin.merge(f"{NODES}/{node}/status", {"status": change})


def exists(api: ApiServer, path: str) -> bool:
    """Return whether there is something at ``path``."""
    try:
        api.get(path)
    except ApiServerError:  # a new kind is also unavailable for a moment
        return False
    return True


@contextmanager
def running(root: Path, nodes: int = 3) -> Iterator[RealFleet]:
    """Run a cluster of ``nodes``, with the kind and the rights of the operator."""
    (root / "audit.yaml").write_text(json.dumps(_AUDIT))
    flags = ["--allow-privileged=true", f"--audit-policy-file={root / 'audit.yaml'}"]
    with api_server(root, *flags, f"--audit-log-path={root / 'audit.log'}") as server:
        manifests = [
            one
            for part in ("crd", "operator")
            for one in render(ROOT / "deployments/operator" / part)
        ]
        order = ["Namespace", "CustomResourceDefinition", "ServiceAccount"]
        manifests.sort(key=lambda one: order.index(one["kind"]) if one["kind"] in order else 9)
        for one in manifests:
            if one["kind"] in {*CLUSTER_WIDE, "CustomResourceDefinition"}:
                one["metadata"].pop("namespace", None)
        server.create([one for one in manifests if one["kind"] != "Deployment"])
        fleet = RealFleet(server)
        eventually(lambda: exists(server.admin, OWNERS), "the kind")
        config = f"--kubeconfig={server.kubeconfig()}"
        common = [config, "--leader-elect=false", "--secure-port=0"]
        chosen = f"--controllers={','.join(_CONTROLLERS)}"
        server.run("controllers", [os.environ["KUBE_CONTROLLER_MANAGER"], *common, chosen])
        server.run("scheduler", [os.environ["KUBE_SCHEDULER"], *common])
        fleet.add_nodes(nodes)
        thread = Thread(target=fleet.run)
        thread.start()
        try:
            yield fleet
        finally:
            fleet._stop.set()
            thread.join()
    if fleet.failure is not None:
        raise fleet.failure
