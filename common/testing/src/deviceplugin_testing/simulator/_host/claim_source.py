"""What the kubelet asks of the API server about claims, and claims that a test gives instead."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import uuid4

from deviceplugin.errors import DevicePluginError
from deviceplugin_testing.simulator._pods.pod import Container, ContainerClaim, Pod, PodClaim

_API: Final = "/apis/resource.k8s.io/v1"


class ClusterError(Exception):
    """The API server has no such object, or cannot answer now. Another attempt follows."""


class Cluster(Protocol):
    """The API server, as far as the kubelet needs it for claims."""

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim; raise ``ClusterError`` if that fails."""

    def delete_slices(self, node: str, driver: str) -> None:
        """Delete the node's ResourceSlices of ``driver``, or of all drivers if it is empty.

        Raises:
            ClusterError: They could not be deleted.
        """


class ApiCluster:
    """A cluster behind an API server, which is a ``deviceplugin.apiserver.ApiServer``."""

    def __init__(self, api: Any) -> None:
        self.api = api

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Read a ResourceClaim."""
        try:
            found: Mapping[str, Any] = self.api.get(
                f"{_API}/namespaces/{namespace}/resourceclaims/{name}"
            )
        except DevicePluginError as error:
            raise ClusterError(str(error)) from error
        return found

    def delete_slices(self, node: str, driver: str) -> None:
        """List the slices and delete each."""
        selector = f"spec.nodeName={node}" + (f",spec.driver={driver}" if driver else "")
        try:
            page = self.api.list(f"{_API}/resourceslices", {"fieldSelector": selector})
            for item in page.items:
                self._delete(item["metadata"]["name"])
        except DevicePluginError as error:
            raise ClusterError(str(error)) from error

    def _delete(self, name: str) -> None:
        try:
            self.api.delete(f"{_API}/resourceslices/{name}")
        except DevicePluginError as error:
            if getattr(error, "status", 0) != 404:  # noqa: PLR2004 - somebody was quicker
                raise


class GivenClaims:
    """Claims that a test gives, without any API server. Thread-safe."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.deleted_slices: list[str] = []
        """The driver of each deletion of slices; empty for a deletion of all."""
        self.failing: str = ""
        """Why every request fails; empty if none does."""

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the claim that was given under this name."""
        self._check()
        try:
            return self._claims[namespace, name]
        except KeyError:
            raise ClusterError(f'resourceclaims.resource.k8s.io "{name}" not found') from None

    def delete_slices(self, node: str, driver: str) -> None:  # noqa: ARG002 - there is one node
        """Record the deletion."""
        self._check()
        self.deleted_slices.append(driver)

    def _check(self) -> None:
        if self.failing:
            raise ClusterError(self.failing)

    def add(self, claim: Mapping[str, Any]) -> None:
        """Add a ResourceClaim object, or replace the one of its name."""
        metadata = claim["metadata"]
        self._claims[metadata["namespace"], metadata["name"]] = claim

    def remove(self, name: str, namespace: str = "default") -> None:
        """Delete a claim, if there is one."""
        self._claims.pop((namespace, name), None)

    def pod(
        self, name: str, driver: str, pool: str, devices: Iterable[str], *, request: str = "request"
    ) -> Pod:
        """Return a new pod with a container ``main`` and a claim for ``devices``, which is added.

        Both the pod and its claim are called ``name``.
        """
        uid = str(uuid4())
        pod = Pod(
            name,
            [Container("main", claims=[ContainerClaim("claim")])],
            uid=uid,
            claims=[PodClaim("claim", name)],
        )
        results = [
            {"request": request, "driver": driver, "pool": pool, "device": device}
            for device in devices
        ]
        self.add(allocated_claim(name, results, pods=[pod]))
        return pod


def allocated_claim(
    name: str,
    results: Sequence[Mapping[str, Any]],
    *,
    pods: Iterable[Pod] = (),
    namespace: str = "default",
    uid: str = "",
    owner: Pod | None = None,
    config: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return a ResourceClaim as the scheduler leaves it.

    Args:
        name: Its name.
        results: ``status.allocation.devices.results``.
        pods: The pods for which it is reserved.
        namespace: Its namespace.
        uid: Its UID; by default a new one.
        owner: The pod for which it was created from a template.
        config: ``status.allocation.devices.config``.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid or str(uuid4())}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    names = dict.fromkeys(result["request"].partition("/")[0] for result in results)
    requests = [{"name": each, "exactly": {"deviceClassName": "any"}} for each in names]
    devices: dict[str, Any] = {"results": [dict(result) for result in results]}
    if config:
        devices["config"] = [dict(each) for each in config]
    reserved = [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in pods]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": devices}, "reservedFor": reserved},
    }
