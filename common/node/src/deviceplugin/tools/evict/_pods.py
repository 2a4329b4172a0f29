"""Pods on the API server: checking whether a pod may be evicted, and evicting it."""

from datetime import UTC, datetime
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ConflictError, NotFoundError, UnavailableError
from deviceplugin.tools.evict._patience import Suspect

KEEP: Final = "deviceplugin.dev/evict"
"""A pod with this annotation and the value ``false`` is never evicted."""
GOING: Final = frozenset({"is gone", "is being deleted", "has ended"})
"""Objections that need not be logged."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_MAX_MESSAGE: Final = 1000


class Pods:
    """The pods of ``node``.

    Args:
        api: The API server.
        node: The name of the node in the cluster.
        bare: Whether to evict also pods without a controller that would replace them.
    """

    def __init__(self, api: ApiServer, node: str, *, bare: bool = False) -> None:
        self._api = api
        self.node = node
        self._bare = bare

    def uid_of(self, suspect: Suspect) -> tuple[str, str]:
        """Return the UID of the pod, and why it must not be evicted; empty if it may be.

        Raises:
            ApiServerError: The request failed.
        """
        try:
            pod = self._api.get(_path(suspect))
        except NotFoundError:
            return "", "is gone"
        try:
            return str(pod["metadata"]["uid"]), self._objection(pod, suspect)
        except (LookupError, TypeError, AttributeError) as error:
            raise UnavailableError(f"{_path(suspect)}: the answer is not a pod") from error

    def _objection(self, pod: dict[str, Any], suspect: Suspect) -> str:
        """Return why ``pod`` must not be evicted, or an empty string."""
        metadata, spec = pod["metadata"], pod["spec"]
        notes = metadata.get("annotations") or {}
        owned = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
        objections = {
            "is being deleted": "deletionTimestamp" in metadata,
            "has ended": pod.get("status", {}).get("phase") in {"Succeeded", "Failed"},
            f"is on node {spec.get('nodeName')!r}": spec.get("nodeName") != self.node,
            f"does not ask for {suspect.resource}": not _asks_for(spec, suspect.resource),
            "is a static pod": _MIRROR in notes,
            f"has the annotation {KEEP}: false": notes.get(KEEP) == "false",
            "has no controller that would replace it": not owned and not self._bare,
        }
        return next((text for text, holds in objections.items() if holds), "")

    def evict(self, suspect: Suspect, uid: str) -> None:
        """Request the eviction of the pod, if it still has ``uid``.

        Raises:
            UnavailableError: A PodDisruptionBudget does not allow it now, or the server does not
                answer.
            ApiServerError: It could not be evicted.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": suspect.name, "namespace": suspect.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            self._api.create(f"{_path(suspect)}/eviction", eviction)
        except (NotFoundError, ConflictError):  # it is gone, or another pod has its name
            return

    def create_event(self, suspect: Suspect, uid: str, message: str) -> None:
        """Create an Event of the pod, so that its owner learns why it was evicted.

        Raises:
            ApiServerError: It could not be created.
        """
        moment = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "device-eviction-", "namespace": suspect.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": suspect.namespace,
                "name": suspect.name,
                "uid": uid,
            },
            "type": "Warning",
            "reason": "DeviceUnhealthy",
            "message": message[:_MAX_MESSAGE],
            "source": {"component": "deviceplugin", "host": self.node},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        self._api.create(f"/api/v1/namespaces/{suspect.namespace}/events", event)


def _path(suspect: Suspect) -> str:
    return f"/api/v1/namespaces/{suspect.namespace}/pods/{suspect.name}"


def _asks_for(spec: dict[str, Any], resource: str) -> bool:
    containers = [*spec.get("containers", ()), *(spec.get("initContainers") or ())]
    return any(
        resource in ((container.get("resources") or {}).get("limits") or {})
        for container in containers
    )
