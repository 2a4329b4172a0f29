"""The kinds of objects that the stand-in for a cluster knows, and how clients discover them."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
NODE_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
"""What every kubelet says of its node."""
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True)
class Kind:
    """A kind, as it is called in manifests, in addresses and by kubectl's users."""

    name: str
    group: str = ""
    namespaced: bool = True
    short: str = ""
    in_all: bool = False
    """Whether ``kubectl get all`` shows it."""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def plural(self) -> str:
        name = self.name.lower()
        if name.endswith("s"):
            return name
        return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"

    @property
    def resource(self) -> str:
        """The name in messages, such as daemonsets.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The name in messages about what is wrong with one, such as DaemonSet.apps."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def path(self) -> str:
        """Where its group is: api/v1 or apis/GROUP/VERSION."""
        return f"apis/{self.api_version}" if self.group else f"api/{self.version}"


NAMESPACE = Kind("Namespace", namespaced=False, short="ns")
NODE = Kind("Node", namespaced=False, short="no")
POD = Kind("Pod", short="po", in_all=True)
EVENT = Kind("Event", short="ev")
CONFIG_MAP = Kind("ConfigMap", short="cm")
ACCOUNT = Kind("ServiceAccount", short="sa")
DAEMON_SET = Kind("DaemonSet", "apps", short="ds", in_all=True)
DEPLOYMENT = Kind("Deployment", "apps", short="deploy", in_all=True)
DEVICE_PLUGIN = Kind(
    "DevicePlugin", "deviceplugin.dev", namespaced=False, short="dpl", version="v1alpha1"
)
KINDS = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    CONFIG_MAP,
    ACCOUNT,
    DAEMON_SET,
    DEPLOYMENT,
    Kind("ResourceQuota", short="quota"),
    Kind("NetworkPolicy", "networking.k8s.io", short="netpol"),
    Kind("Lease", "coordination.k8s.io"),
    Kind("DeviceClass", "resource.k8s.io", namespaced=False),
    Kind("Role", "rbac.authorization.k8s.io"),
    Kind("RoleBinding", "rbac.authorization.k8s.io"),
    Kind("SecurityContextConstraints", "security.openshift.io", namespaced=False, short="scc"),
    Kind("ClusterRole", "rbac.authorization.k8s.io", namespaced=False),
    Kind("ClusterRoleBinding", "rbac.authorization.k8s.io", namespaced=False),
    Kind("ValidatingAdmissionPolicy", "admissionregistration.k8s.io", namespaced=False),
    Kind("ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io", namespaced=False),
    Kind("MutatingAdmissionPolicy", "admissionregistration.k8s.io", namespaced=False),
    Kind("MutatingAdmissionPolicyBinding", "admissionregistration.k8s.io", namespaced=False),
    Kind("CustomResourceDefinition", "apiextensions.k8s.io", namespaced=False),
    Kind("PodMonitor", "monitoring.coreos.com"),
    Kind("PrometheusRule", "monitoring.coreos.com"),
    DEVICE_PLUGIN,
)
PATHS = sorted({kind.path for kind in KINDS})


def documents(version: str) -> dict[str, Object]:
    """Return what is asked for to discover the kinds, by path."""
    groups = sorted({(kind.group, kind.version) for kind in KINDS if kind.group})
    found: dict[str, Object] = {
        "version": {"major": "1", "minor": version[2:], "gitVersion": f"v{version}.0"},
        "api": {"kind": "APIVersions", "versions": ["v1"]},
        "apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(*group) for group in groups],
        },
        "openapi/v3": {
            "paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=1"} for path in PATHS}
        },
    }
    for path in PATHS:
        kinds = [kind for kind in KINDS if kind.path == path]
        found[path] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].api_version,
            "resources": [_resource(kind) for kind in kinds],
        }
        found[f"openapi/v3/{path}"] = _open_api(kinds)
    return found


def _group(group: str, version: str) -> Object:
    found = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [found], "preferredVersion": found}


def _resource(kind: Kind) -> Object:
    return {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "kind": kind.name,
        "namespaced": kind.namespaced,
        "verbs": VERBS,
        "shortNames": [kind.short] if kind.short else [],
        "categories": ["all"] if kind.in_all else [],
    }


def _open_api(kinds: list[Kind]) -> Object:
    """Return as much of the description as tells kubectl that fields are checked here."""
    checked = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {
        f"/{kind.path}/{kind.plural}/{{name}}": {
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
        for kind in kinds
    }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}
