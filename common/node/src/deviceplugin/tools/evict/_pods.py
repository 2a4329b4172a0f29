"""Which pods hold a device that has been unhealthy for long enough, and evicting one."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from deviceplugin._attribution.holds import PREFIX
from deviceplugin.apiserver import ApiServer, ConflictError, NotFoundError, UnavailableError

SILENCE: Final = 60.0
"""Seconds without an answer of the plugin after which earlier observations are discarded."""

_Key = tuple[str, str]
KEEP: Final = "deviceplugin.dev/evict"
"""A pod with this annotation and the value ``false`` is never evicted."""
GOING: Final = frozenset({"is gone", "is being deleted", "has ended"})
"""Objections that need not be logged."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_MAX_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod that holds an unhealthy device."""

    namespace: str
    name: str
    resource: str
    device: str
    reason: str
    """Why the device is unhealthy."""
    seconds: float
    """How long the device has been observed unhealthy."""
    left: float
    """Seconds until the pod's time is up; negative if it is."""
    renewed_by_restart: str = ""
    """If it is for a device node that is gone, but the path of which leads to the new one, the time
    since which a container that starts gets that, as ISO 8601."""
    containers: Collection[str] = ()
    """Those that hold the device."""
    claims: frozenset[str] = frozenset()
    """The ResourceClaims through which they do; none if through the device plugin."""

    @property
    def wanted(self) -> str:
        """What the pod must ask for, if it is still the one that holds the device."""
        return f"claim {', '.join(sorted(self.claims))}" if self.claims else self.resource


@dataclass(eq=False, repr=False)
class Patience:
    """Measures how long each device has been unhealthy, as observed without a break.

    The time before the start does not count, nor does the time before the plugin was silent for a
    minute. So a pod is evicted late rather than for a device that recovered meanwhile.
    """

    of: Callable[[str], float]
    """Returns for how many seconds a device of a resource may be unhealthy."""
    resources: Collection[str] = ()
    """The resources to observe; all if it is empty."""

    def __post_init__(self) -> None:
        self._since: dict[_Key, float] = {}
        self._asked = float("-inf")

    def observe(self, page: Mapping[str, Any], now: float) -> list[Suspect]:
        """Record a plugin's ``/devices``; return the suspects, the longest unhealthy first.

        ``now`` is in monotonic seconds. Errors of builtin classes mean that ``page`` is none.
        """
        if now - self._asked > SILENCE:
            self._since.clear()
        self._asked = now
        since: dict[_Key, float] = {}
        suspects: list[Suspect] = []
        for resource in page["resources"]:
            name = str(resource["name"])
            wanted = not self.resources or name in self.resources
            for device in resource["devices"] if wanted else ():
                # A held device keeps its pods, unless something is wrong with it as well.
                if not (device["healthy"] or str(device["reason"]).startswith(PREFIX)):
                    key = name, str(device["id"])
                    since[key] = self._since.get(key, now)
                    suspects += self._of_device(key, device, now - since[key])
        self._since = since
        return sorted(suspects, key=lambda suspect: (suspect.left, suspect.namespace, suspect.name))

    def _of_device(self, key: _Key, device: Mapping[str, Any], seconds: float) -> Iterator[Suspect]:
        resource, device_id = key
        left = self.of(resource) - seconds
        reason = " ".join(str(device.get("reason", "")).split())
        stale = device.get("stale") or {}
        renewed = str(stale["since"]) if stale.get("by_link") else ""
        pods: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for hold in device.get("holders") or ():
            if pod := str(hold["pod"]):  # no pod of the claim is listed yet, or any more
                pods.setdefault((str(hold["namespace"]), pod), []).append(hold)
        for (namespace, pod), holds in sorted(pods.items()):
            found = (namespace, pod, resource, device_id, reason, seconds, left)
            containers = [str(hold.get("container", "")) for hold in holds]
            claims = frozenset(str(hold["claim"]) for hold in holds if hold.get("claim"))
            yield Suspect(*found, renewed_by_restart=renewed, containers=containers, claims=claims)


@dataclass(eq=False, repr=False)
class Pods:
    """The pods of ``node``."""

    api: ApiServer
    node: str
    _: KW_ONLY
    bare: bool = False
    """Whether to evict also pods without a controller that would replace them."""

    def uid_of(self, suspect: Suspect) -> tuple[str, str]:
        """Return the UID of the pod, and why it must not be evicted; empty if it may be."""
        try:
            pod = self.api.get(_path(suspect))
        except NotFoundError:
            return "", "is gone"
        try:
            return str(pod["metadata"]["uid"]), self._objection(pod, suspect)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UnavailableError(f"{_path(suspect)}: the answer is not a pod") from error

    def _objection(self, pod: dict[str, Any], suspect: Suspect) -> str:
        metadata, spec = pod["metadata"], pod["spec"]
        notes = metadata.get("annotations") or {}
        owned = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
        objections = {
            "is being deleted": "deletionTimestamp" in metadata,
            "has ended": pod.get("status", {}).get("phase") in {"Succeeded", "Failed"},
            f"is on node {spec.get('nodeName')!r}": spec.get("nodeName") != self.node,
            f"does not ask for {suspect.wanted}": not _asks_for(pod, suspect),
            "has restarted since its device node has gone": _has_restarted(pod, suspect),
            "is a static pod": _MIRROR in notes,
            f"has the annotation {KEEP}: false": notes.get(KEEP) == "false",
            "has no controller that would replace it": not owned and not self.bare,
        }
        return next((text for text, holds in objections.items() if holds), "")

    def evict(self, suspect: Suspect, uid: str) -> None:
        """Request the eviction of the pod, if it still has ``uid``; raise ``ApiServerError``.

        A PodDisruptionBudget that does not allow it now is ``UnavailableError``.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": suspect.name, "namespace": suspect.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            self.api.create(f"{_path(suspect)}/eviction", eviction)
        except (NotFoundError, ConflictError):  # it is gone, or another pod has its name
            return

    def create_event(self, suspect: Suspect, uid: str, message: str) -> None:
        """Create an Event of the pod, so that its owner learns why it was evicted."""
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
        self.api.create(f"/api/v1/namespaces/{suspect.namespace}/events", event)


def _path(suspect: Suspect) -> str:
    return f"/api/v1/namespaces/{suspect.namespace}/pods/{suspect.name}"


def _has_restarted(pod: dict[str, Any], suspect: Suspect) -> bool:
    """Return whether all containers with the device have got its new node by starting again."""
    if not suspect.renewed_by_restart:
        return False
    status = pod.get("status") or {}
    listed = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    states = [one.get("state") or {} for one in listed if one["name"] in suspect.containers]
    starts = [str((state.get("running") or {}).get("startedAt", "")) for state in states]
    since = datetime.fromisoformat(suspect.renewed_by_restart)
    return bool(starts) and all(one and datetime.fromisoformat(one) > since for one in starts)


def _asks_for(pod: dict[str, Any], suspect: Suspect) -> bool:
    spec, status = pod["spec"], pod.get("status") or {}
    if suspect.claims:
        made = [*spec.get("resourceClaims", ()), *(status.get("resourceClaimStatuses") or ())]
        made.append(status.get("extendedResourceClaimStatus") or {})
        return not suspect.claims.isdisjoint(str(one.get("resourceClaimName")) for one in made)
    containers = [*spec.get("containers", ()), *(spec.get("initContainers") or ())]
    return any(
        suspect.resource in ((container.get("resources") or {}).get("limits") or {})
        for container in containers
    )
