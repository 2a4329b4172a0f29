"""The kinds of objects that the stand-in for a cluster knows, and how clients discover them."""

from deviceplugin_testing.simulator._control_plane.api_server import answering
from deviceplugin_testing.simulator._control_plane.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEVICE_CLASS,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    SERVICE_ACCOUNT,
    Kind,
    Object,
)

__all__ = [
    "CLUSTER_ROLE",
    "CLUSTER_ROLE_BINDING",
    "DEVICE_CLASS",
    "EVENT",
    "NAMESPACE",
    "NODE",
    "POD",
    "RESOURCE_SLICE",
    "Kind",
    "Object",
]

NODE_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
"""What every kubelet says of its node."""
ACCOUNT = SERVICE_ACCOUNT
CONFIG_MAP = Kind("ConfigMap")
DAEMON_SET = Kind("DaemonSet", "apps", counts_generations=True, has_status=True)
DEPLOYMENT = Kind("Deployment", "apps", counts_generations=True, has_status=True)
DEVICE_PLUGIN = Kind(
    "DevicePlugin",
    "deviceplugin.dev",
    namespaced=False,
    version="v1alpha1",
    counts_generations=True,
    has_status=True,
)
SHORT = {
    "Namespace": "ns",
    "Node": "no",
    "Pod": "po",
    "Event": "ev",
    "ConfigMap": "cm",
    "ServiceAccount": "sa",
    "DaemonSet": "ds",
    "Deployment": "deploy",
    "DevicePlugin": "dpl",
    "ResourceQuota": "quota",
    "NetworkPolicy": "netpol",
    "SecurityContextConstraints": "scc",
}
IN_ALL = ("Pod", "DaemonSet", "Deployment")
"""What ``kubectl get all`` shows."""
_ADMISSION = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
KINDS = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    CONFIG_MAP,
    ACCOUNT,
    DAEMON_SET,
    DEPLOYMENT,
    Kind("ResourceQuota"),
    Kind("NetworkPolicy", "networking.k8s.io"),
    Kind("Lease", "coordination.k8s.io"),
    DEVICE_CLASS,
    RESOURCE_SLICE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    Kind("Role", _RBAC),
    Kind("RoleBinding", _RBAC),
    Kind("SecurityContextConstraints", "security.openshift.io", namespaced=False),
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    Kind("ValidatingAdmissionPolicy", _ADMISSION, namespaced=False),
    Kind("ValidatingAdmissionPolicyBinding", _ADMISSION, namespaced=False),
    Kind("MutatingAdmissionPolicy", _ADMISSION, namespaced=False),
    Kind("MutatingAdmissionPolicyBinding", _ADMISSION, namespaced=False),
    Kind("CustomResourceDefinition", "apiextensions.k8s.io", namespaced=False),
    Kind("PodMonitor", "monitoring.coreos.com"),
    Kind("PrometheusRule", "monitoring.coreos.com"),
    DEVICE_PLUGIN,
)
PATHS = sorted({kind.root for kind in KINDS})


def documents(version: str) -> dict[str, Object]:
    """Return what is asked for to discover the kinds, by path."""
    found = answering.documents(KINDS)
    for one in (one for path in PATHS for one in found[path]["resources"] if one["singularName"]):
        one["shortNames"] = [SHORT[one["kind"]]] if one["kind"] in SHORT else []
        one["categories"] = ["all"] if one["kind"] in IN_ALL else []
    groups = sorted({(kind.group, kind.version) for kind in KINDS if kind.group})
    return {
        **found,
        "/version": {"major": "1", "minor": version[2:], "gitVersion": f"v{version}.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(*group) for group in groups],
        },
        "/openapi/v3": {
            "paths": {
                path[1:]: {"serverRelativeURL": f"/openapi/v3{path}?hash=1"} for path in PATHS
            }
        },
        **{f"/openapi/v3{path}": _open_api(path) for path in PATHS},
    }


def _group(group: str, version: str) -> Object:
    found = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [found], "preferredVersion": found}


def _open_api(path: str) -> Object:
    """Return as much of the description as tells kubectl that fields are checked here."""
    checked = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {
        f"{kind.root}/{kind.plural}/{{name}}": {
            "patch": {
                "parameters": [checked],
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": kind.group,
                    "version": kind.version,
                    "kind": kind.name,
                },
            }
        }
        for kind in KINDS
        if kind.root == path
    }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}
