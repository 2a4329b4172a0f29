"""What we expect of every device plugin that is deployed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any

from manifests.expected import expected
from manifests.kustomize import CLUSTER_WIDE
from manifests.network import network_problems
from manifests.plugin_settings import driver_directory, settings_problems
from manifests.rights import access_problems

Manifest = Mapping[str, Any]

_PLUGIN = "device-plugin"
"""The container of the plugin; others are beside it."""
KINDS = ("Namespace", "ServiceAccount", "ResourceQuota", "NetworkPolicy", "DaemonSet")
_DAEMON_SET: Mapping[str, object] = {
    "updateStrategy.type": "RollingUpdate",
}
_TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_ARCHITECTURES = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
_POD: Mapping[str, object] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "priorityClassName": "system-node-critical",
    # By a label that every node has: no add-on is needed to be scheduled.
    "nodeSelector": {"kubernetes.io/os": "linux"},
    # No other images are built.
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [_ARCHITECTURES]}]
            }
        }
    },
    "securityContext.seccompProfile": {"type": "RuntimeDefault"},
    "hostNetwork": None,
    "hostPID": None,
    "hostIPC": None,
    "shareProcessNamespace": None,
}
_SINGLE: Mapping[str, object] = {"replicas": 1, "strategy": {"type": "Recreate"}}
_POD_OF_ITS_OWN: Mapping[str, object] = {
    **{path: _POD[path] for path in _POD if path != "priorityClassName"},
    "securityContext.runAsNonRoot": True,
    # A node that is away loses the pod, whatever else it is tainted with.
    "tolerations": [
        {"operator": "Exists", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ],
}
_CONFINED: Mapping[str, object] = {
    "securityContext.privileged": False,
    "securityContext.allowPrivilegeEscalation": False,
    "securityContext.readOnlyRootFilesystem": True,
    "securityContext.capabilities": {"drop": ["ALL"]},
    "securityContext.seccompProfile": None,
    "securityContext.seLinuxOptions": None,
    "securityContext.procMount": None,
}
_PRIVILEGED: Mapping[str, object] = {
    "securityContext.privileged": True,
    # Kubernetes refuses False with it.
    "securityContext.allowPrivilegeEscalation": True,
}
_MPS: Mapping[str, object] = {
    **_PRIVILEGED,
    "securityContext.readOnlyRootFilesystem": True,
    "securityContext.seLinuxOptions": {"type": "spc_t"},
}
_NOBODY: Mapping[str, object] = {
    "securityContext.runAsNonRoot": True,
    "securityContext.runAsUser": 65532,
    "securityContext.runAsGroup": 65532,
}
_PROBED: Mapping[str, str] = {
    "startupProbe.httpGet": "/healthz",
    "readinessProbe.httpGet": "/readyz",
    "livenessProbe.httpGet": "/healthz",
}
SELINUX = "container_device_plugin_t"
_NEEDED = ("resources.requests.cpu", "resources.requests.memory", "resources.limits.memory")
_TOO_WIDE = {
    *("/", "/dev", "/etc", "/home", "/opt", "/proc", "/root", "/run", "/sys", "/usr", "/var"),
    *("/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/plugins", "/var/run"),
}
_TYPES = {"Directory", "DirectoryOrCreate", "CharDevice", "BlockDevice", "File", "Socket"}
_WRITABLE = {
    "/var/lib/kubelet/device-plugins",  # the plugin's socket is made here
    "/var/lib/kubelet/plugins_registry",  # or here
    "/var/run/cdi",  # CDI specifications
}
"""By every plugin; what one needs besides stands in its deployment.toml."""


def _probed(container: Manifest) -> Mapping[str, object]:
    """Return the probes of a container: by TLS if its port has TLS, and else not."""
    has_tls = any(one["name"] == "DP_HTTP_CERT_FILE" for one in container.get("env", ()))
    more = {"scheme": "HTTPS"} if has_tls else {}
    return {probe: {"path": path, "port": "http", **more} for probe, path in _PROBED.items()}


def _of_update(daemon_set: Manifest, container: Manifest) -> Iterator[str]:
    """Yield why two pods of a node would not be replaced as their plugin expects it."""
    update = daemon_set["updateStrategy"].get("rollingUpdate") or {}
    surge, unavailable = (update.get(f"max{one}", 0) for one in ("Surge", "Unavailable"))
    if (surge in {0, "0%"}) == (unavailable in {0, "0%"}):
        yield f"DaemonSet: maxSurge is {surge}, and maxUnavailable {unavailable}: one must be 0"
    if surge in {0, "0%"}:
        return
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "DaemonSet: maxSurge with a hostPort, which only one of two pods can have"
    if {"name": "DP_REGISTRATION", "value": "watcher"} in container.get("env", ()):
        yield "DaemonSet: maxSurge with the plugin watcher, for which two pods have one socket"


def problems(
    manifests: Sequence[Manifest],
    command: str,
    allowed: Collection[str] = (),
    *,
    privileged: bool = False,
    host_pid: bool = False,
    selinux: str = SELINUX,
) -> list[str]:
    """Return what is wrong with ``manifests``, which run ``command``.

    Directories of the host that are ``allowed`` may be wide; still, they are read-only. The
    plugin's container is to be ``privileged``, or must not be; still, its root is read-only.
    ``host_pid``: whether its pod sees the processes of the host. SELinux knows it as ``selinux``.
    """
    by_kind = {manifest["kind"]: manifest for manifest in reversed(manifests)}
    missing = [kind for kind in KINDS if kind not in by_kind]
    if missing:
        return [f"no {kind}" for kind in missing]
    daemon_set = by_kind["DaemonSet"]["spec"]
    more = expected(command.removesuffix("-device-plugin"))
    pod = daemon_set["template"]["spec"]
    (container,) = (one for one in pod["containers"] if one["name"] == _PLUGIN)
    rights = _PRIVILEGED if privileged else {}
    templates = [daemon_set["template"]]
    templates += [one["spec"]["template"] for one in _deployments(manifests)]
    return [
        *_of_namespace(manifests, by_kind),
        *network_problems(manifests, templates, container),
        *_of_deployments(manifests, command),
        *access_problems(manifests, container),
        *_differ("DaemonSet", daemon_set, _DAEMON_SET),
        *_of_update(daemon_set, container),
        *_differ(
            "pod",
            _without_exceptions(pod),
            {**_POD, "hostPID": host_pid or None, "securityContext.seLinuxOptions.type": selinux},
        ),
        *_differ("container", container, {**_CONFINED, **_probed(container), **rights}),
        *(f"container: no {path}" for path in _NEEDED if _get(container, path) is None),
        *(
            problem
            for init in pod.get("initContainers", ())
            for problem in _differ(f"init container {init['name']}", init, _CONFINED)
        ),
        *(problem for other in pod["containers"] for problem in _of_sidecar(other)),
        *_of_volumes(pod, allowed, _WRITABLE | more.writable | {driver_directory(container) or ""}),
        *settings_problems(container, manifests, command, more),
    ]


def _without_exceptions(pod: Manifest) -> Manifest:
    """Return a pod without the labels of nodes that it is not for: all other nodes need none."""
    found = deepcopy(dict(pod))
    terms: Any = _get(found, _TERMS)
    for term in terms or ():
        expressions = term["matchExpressions"]
        term["matchExpressions"] = [one for one in expressions if one["operator"] != "NotIn"]
    return found


def _of_namespace(manifests: Sequence[Manifest], by_kind: Mapping[str, Manifest]) -> Iterator[str]:
    namespace = by_kind["Namespace"]["metadata"]
    if "pod-security.kubernetes.io/enforce" not in namespace.get("labels", {}):
        yield "namespace: no pod-security label"
    for manifest in manifests:
        kind = manifest["kind"]
        if (
            kind not in {"Namespace", *CLUSTER_WIDE}
            and manifest["metadata"].get("namespace") != namespace["name"]
        ):
            yield f"{kind}: not in namespace {namespace['name']}"
    account = by_kind["ServiceAccount"]
    if account.get("automountServiceAccountToken") is not False:
        yield "service account: its token is mounted"
    pod = by_kind["DaemonSet"]["spec"]["template"]["spec"]
    if pod["serviceAccountName"] != account["metadata"]["name"]:
        yield "pod: not the service account that is made for it"


def _of_deployments(manifests: Sequence[Manifest], command: str) -> Iterator[str]:
    """Check the pods of which there is one for all nodes."""
    for one in _deployments(manifests):
        name, spec = one["metadata"]["name"], one["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        yield from _differ(name, spec, _SINGLE)
        yield from _differ(name, pod, {**_POD_OF_ITS_OWN, "serviceAccountName": name})
        yield from _differ(f"container {container['name']}", container, _CONFINED)
        lacks = (path for path in _NEEDED if _get(container, path) is None)
        yield from (f"container {container['name']}: no {path}" for path in lacks)
        yield from _of_volumes(pod, (), ())
        if f"{command}-{container['name']}" != name:
            yield f"{name}: is not named after its plugin"


def _deployments(manifests: Sequence[Manifest]) -> list[Manifest]:
    return [one for one in manifests if one["kind"] == "Deployment"]


def _of_sidecar(container: Manifest) -> Iterator[str]:
    name = container["name"]
    if name == _PLUGIN:
        return
    expected = _MPS if name == "mps" else {**_CONFINED, **_NOBODY}
    yield from _differ(f"container {name}", container, expected)
    yield from (f"container {name}: no {path}" for path in _NEEDED if _get(container, path) is None)


def _of_volumes(
    pod: Manifest, allowed: Collection[str], writable: Collection[str]
) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    containers = [*pod["containers"], *pod.get("initContainers", ())]
    mounts = [mount for container in containers for mount in container.get("volumeMounts", ())]
    if differing := volumes.keys() ^ {mount["name"] for mount in mounts}:
        yield f"volumes and mounts differ: {sorted(differing)}"
    for name, volume in volumes.items():
        if "hostPath" in volume:
            yield from _of_host_path(name, volume["hostPath"], allowed)
    for mount in mounts:
        is_own = "emptyDir" in volumes.get(mount["name"], ())
        if mount["mountPath"] not in writable and not mount.get("readOnly") and not is_own:
            yield f"mount {mount['name']}: can be written to"
    for container in containers:
        yield from _of_last_words(container)


def _of_host_path(name: str, host: Mapping[str, str], allowed: Collection[str]) -> Iterator[str]:
    if host.get("type") not in _TYPES:
        yield f"volume {name}: no type"
    if host["path"].rstrip("/") in {path.rstrip("/") for path in _TOO_WIDE - {*allowed}}:
        yield f"volume {name}: {host['path']} is too wide"


def _of_last_words(container: Manifest) -> Iterator[str]:
    path = PurePosixPath(container.get("terminationMessagePath", "/dev/termination-log"))
    for mount in container.get("volumeMounts", ()):
        if path.is_relative_to(mount["mountPath"]):
            yield f"container: {path} cannot be made in mount {mount['name']}"


def _differ(what: str, manifest: Manifest, expected: Mapping[str, object]) -> Iterator[str]:
    for path, value in expected.items():
        found = _get(manifest, path)
        if found != value:
            yield f"{what}: {path} is {found}, not {value}"


def _get(manifest: Manifest, path: str) -> object:
    place: Any = manifest
    for name in path.split("."):
        place = place.get(name) if isinstance(place, Mapping) else None
    return place
