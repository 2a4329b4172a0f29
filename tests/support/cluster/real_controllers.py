"""The real scheduler and the real controllers of claims, behind a real API server.

Nodes are objects, and nobody runs the pods: a test ends them. It has the methods of a
``SimulatedCluster`` that ``dra_objects.Objects`` needs.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cluster import real_api_server
from deviceplugin.apiserver import ApiServer, ConflictError, NotFoundError
from deviceplugin_testing.simulator._control_plane.kinds import KINDS
from patience import eventually

Object = dict[str, Any]
PROGRAMS: Final = ("KUBE_CONTROLLER_MANAGER", "KUBE_SCHEDULER")
_PLACES: Final[Mapping[str, str]] = {
    kind.name: f"{kind.root}/{'namespaces/default/' if kind.namespaced else ''}{kind.plural}"
    for kind in KINDS
}
_CONTROLLERS: Final = (
    "resourceclaim-controller",
    "device-taint-eviction-controller",
    "garbage-collector-controller",
)
_LAST: Final = ("Pod", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice")


def why_not() -> str:
    """Return why there is none here, if so."""
    return real_api_server.why_not(more=PROGRAMS)


class RealCluster:
    """See the module."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object in the namespace default."""
        return self._api.create(_PLACES[manifest["kind"]], dict(manifest))

    def get(self, kind: str, name: str) -> Object | None:
        """Return an object, or None."""
        with suppress(NotFoundError):
            return self._api.get(f"{_PLACES[kind]}/{name}")
        return None

    def list(self, kind: str) -> Sequence[Object]:
        """Return all objects of a kind."""
        return self._api.list(_PLACES[kind]).items

    def change(self, kind: str, name: str, edit: Callable[[Object], object]) -> None:
        """Let ``edit`` change an object and its status."""

        def changed() -> bool:
            found = self.get(kind, name)
            assert found is not None
            edit(found)
            path = f"{_PLACES[kind]}/{name}"
            with suppress(ConflictError):
                written = self._api.replace(path, found)
                if kind in {"Pod", "Node"}:
                    found["metadata"] = written["metadata"]
                    self._api.replace(f"{path}/status", found)
                return True
            return False

        eventually(changed, f"a change of {kind} {name}")

    def delete(self, kind: str, name: str, *, grace: int | None = None) -> None:
        """Delete an object; a pod at once with a ``grace`` of 0."""
        body = None if grace is None else {"gracePeriodSeconds": grace}
        self._api._ask("DELETE", f"{_PLACES[kind]}/{name}", body=body)

    def settle(self) -> None:
        """Do nothing: the controllers are at work, and a test waits for what it expects."""

    def add_node(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a node that is ready."""
        self.create({"kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}})
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "test", "message": ""}

        def edit(node: Object) -> None:
            node["spec"].pop("taints", None)
            node["status"] |= {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}

        self.change("Node", name, edit)

    def clear(self) -> None:
        """Delete all pods, claims, slices, classes and nodes."""
        for kind in _LAST:
            for one in self.list(kind):
                name = one["metadata"]["name"]
                with suppress(NotFoundError):
                    self.delete(kind, name, grace=0)
        for one in self.list("Node"):
            self.delete("Node", one["metadata"]["name"])
        eventually(lambda: not any(self.list(kind) for kind in _LAST), "an empty cluster")


@contextmanager
def running(root: Path) -> Iterator[RealCluster]:
    """Run a cluster with its files below ``root``, which is empty."""
    with real_api_server.running(root) as server:
        server.admin.create(
            "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        kubeconfig = f"--kubeconfig={server.kubeconfig()}"
        alone = "--leader-elect=false"
        controllers = ",".join(_CONTROLLERS)
        server.run(
            "controllers",
            [
                *(os.environ["KUBE_CONTROLLER_MANAGER"], kubeconfig, alone),
                *(f"--controllers={controllers}", "--secure-port=0"),
            ],
        )
        server.run(
            "scheduler", [os.environ["KUBE_SCHEDULER"], kubeconfig, alone, "--secure-port=0"]
        )
        yield RealCluster(server.admin)
