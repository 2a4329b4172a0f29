"""The kinds of objects that the simulated API server serves."""

from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]
RESOURCE: Final = "resource.k8s.io"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind, as it is called in manifests and in addresses."""

    name: str
    group: str = ""
    namespaced: bool = True
    version: str = "v1"
    selectable: tuple[str, ...] = ()
    """The fields that a field selector may name, besides name and namespace."""
    counts_generations: bool = False
    """Whether a change of the specification raises ``metadata.generation``."""
    has_status: bool = False
    """Whether ``status`` is written only at the address that ends in ``/status``."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def plural(self) -> str:
        name = self.name.lower()
        if name.endswith("y"):
            return f"{name[:-1]}ies"
        if name.endswith("ss"):
            return f"{name}es"
        return name if name.endswith("s") else f"{name}s"

    @property
    def resource(self) -> str:
        """Return the name in messages, such as resourceslices.resource.k8s.io."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """Return the name in messages about invalid objects: ResourceSlice.resource.k8s.io."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


NAMESPACE: Final = Kind("Namespace", namespaced=False)
NODE: Final = Kind("Node", namespaced=False, selectable=("spec.unschedulable",), has_status=True)
POD: Final = Kind(
    "Pod",
    selectable=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    counts_generations=True,
    has_status=True,
)
EVICTIONS: Final = Kind("Eviction", "policy")
"""What is posted to a pod; there are none to read."""
EVENT: Final = Kind(
    "Event",
    selectable=(
        *(f"involvedObject.{one}" for one in ("kind", "name", "namespace", "uid")),
        "reason",
        "type",
    ),
)
SERVICE_ACCOUNT: Final = Kind("ServiceAccount")
CLUSTER_ROLE: Final = Kind("ClusterRole", "rbac.authorization.k8s.io", namespaced=False)
CLUSTER_ROLE_BINDING: Final = Kind(
    "ClusterRoleBinding", "rbac.authorization.k8s.io", namespaced=False
)
RESOURCE_SLICE: Final = Kind(
    "ResourceSlice",
    RESOURCE,
    namespaced=False,
    selectable=("spec.nodeName", "spec.driver"),
    counts_generations=True,
)
RESOURCE_CLAIM: Final = Kind("ResourceClaim", RESOURCE, has_status=True)
RESOURCE_CLAIM_TEMPLATE: Final = Kind("ResourceClaimTemplate", RESOURCE)
DEVICE_CLASS: Final = Kind("DeviceClass", RESOURCE, namespaced=False, counts_generations=True)
KINDS: Final = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    SERVICE_ACCOUNT,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    RESOURCE_SLICE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    DEVICE_CLASS,
)
