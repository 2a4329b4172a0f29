"""What is kept of a peer's pod, and what is different."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from deviceplugin._config.quantities import size_in_bytes
from deviceplugin.kit.migration import Migration, Setting
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import items, mapping, strings

PLUGIN_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
_LIMIT: Final = "160Mi"
_REQUEST: Final = "64Mi"
"""What ours needs without devices, rounded up."""
_KEPT: Final[Mapping[str, tuple[type[Any], str]]] = {
    "nodeSelector": (Mapping, "a mapping"),
    "affinity": (Mapping, "a mapping"),
    "runtimeClassName": (str, "a string"),
    "imagePullSecrets": (list, "a list"),
}
_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_POD_KEYS: Final = ("serviceAccountName", "priorityClassName", "initContainers", "volumes")
_CONTAINER_KEYS: Final = ("resources", "securityContext", "ports", "volumeMounts", *_PROBES)
_CHART: Final = {
    "nameOverride": "not taken over",
    "fullnameOverride": "not taken over",
    "namespaceOverride": "not taken over; ours has a namespace of its own",
}
_PRIVILEGED: Final = "-privileged"
"""How the names of components end that make our pod privileged."""
_OUR_NODES: Final[tuple[Mapping[str, str], ...]] = ({}, {"kubernetes.io/os": "linux"})


@dataclass
class Comparison:
    """Patches that keep what a peer's pod has, and differences in words."""

    pod: dict[str, Any] = field(default_factory=dict)
    """Fields of the pod's specification to patch."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    """Volumes to patch, by name."""
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """A peer that was found, and all that becomes of it."""

    found: Found
    migration: Migration
    comparison: Comparison


def compare(found: Found, migration: Migration) -> Comparison:
    """Return what is kept of a peer's pod, and what is different; raise ``ConfigError``."""
    found = replace(found, pod={**found.pod, **migration.pod})
    is_privileged = any(one.endswith(_PRIVILEGED) for one in migration.components)
    result = Comparison()
    for key, value in _kept(found):
        result.pod[key] = value
        result.differences.append(f"{key}: kept by a patch")
    result.differences += [
        *_tolerations(found),
        *_memory(found.container),
        *_rights(found, is_privileged=is_privileged),
        *_network(found),
        *_others(found),
    ]
    _note(found)
    for name, path in (*_moved(found), *_host_paths(migration)):
        result.volumes.append({"name": name, "hostPath": {"path": path}})
        result.differences.append(f"host path {path}: kept by a patch, for the volume {name}")
    return result


def _kept(found: Found) -> Iterator[tuple[str, Any]]:
    for key, (kind, wanted) in _KEPT.items():
        value = found.pod.get(key)
        setting = Setting(f"{found.workload.place}: {key}", value)
        if value and not isinstance(value, kind):
            raise setting.wrong(wanted)
        labels = value.items() if value and key == "nodeSelector" else ()
        if not all(isinstance(text, str) for label in labels for text in label):
            raise setting.wrong("a mapping of strings: put them in quotes")
        if value and not (key == "nodeSelector" and value in _OUR_NODES):
            yield key, value


def _host_paths(migration: Migration) -> Iterator[tuple[str, str]]:
    for one in migration.pod.get("volumes", ()):
        yield one["name"], one["hostPath"]["path"]


def _note(found: Found) -> None:
    """Account for what ``compare`` has looked at."""
    account = found.workload.account
    for key in (*_KEPT, "tolerations", *_NAMESPACES, *_POD_KEYS):
        account.take((*found.pod_path, key))
    for key in _CONTAINER_KEYS:
        account.take((*found.workload.root, key))
    for key, why in _CHART.items() if found.workload.values is not None else ():
        found.workload.drop(why, key)


def _tolerations(found: Found) -> Iterator[str]:
    given = items(found.pod, found.workload.place, "tolerations")
    keys = [str(one.get("key") or "all taints") for one in given]
    if "all taints" not in keys:
        listed = ", ".join(keys) or "none"
        yield (
            f"tolerations: {listed}; ours tolerates all taints, so it also runs on nodes that are "
            "tainted with others: use a nodeSelector to keep it off"
        )


def _memory(container: Mapping[str, Any]) -> Iterator[str]:
    limits = mapping(mapping(container, "resources"), "limits")
    if text := str(limits.get("memory") or ""):
        yield f"resources.limits.memory: {text}; ours is {_LIMIT}{_too_little(text)}"
    if "cpu" in limits:
        yield (
            f"resources.limits.cpu: {limits['cpu']}; ours has none, because each pod that wants a "
            "device waits for a plugin that is throttled"
        )


def _too_little(limit: str) -> str:
    """Return what a memory limit of a peer would do to our plugin."""
    try:
        bytes_ = size_in_bytes(limit)
    except ValueError as error:
        return f", and {limit!r} {error}"
    if bytes_ < size_in_bytes(_REQUEST):
        return ": with theirs ours would be killed before it registers"
    return "" if bytes_ >= size_in_bytes(_LIMIT) else ": theirs is too little for many devices"


def _rights(found: Found, *, is_privileged: bool) -> Iterator[str]:
    context = mapping(found.container, "securityContext")
    if context.get("privileged") and not is_privileged:
        yield "securityContext.privileged: true; ours is not privileged and has no capabilities"
    if added := strings(mapping(context, "capabilities"), found.workload.place, "add"):
        yield f"capabilities: adds {', '.join(added)}; ours has none"
    user = context.get("runAsUser", mapping(found.pod, "securityContext").get("runAsUser"))
    if user:
        yield f"runAsUser: {user}; ours is root without capabilities, for the kubelet's directory"
    account = found.pod.get("serviceAccountName")
    if account:
        yield f"serviceAccountName: {account}; ours has one of its own, without a token"


def _network(found: Found) -> Iterator[str]:
    for key in _NAMESPACES:
        if found.pod.get(key):
            yield f"{key}: true; ours does not need it"
    ports = items(found.container, found.workload.place, "ports")
    numbers = [str(one.get("containerPort")) for one in ports]
    if numbers:
        yield (
            f"ports: {', '.join(numbers)}; ours is 9494, with /metrics, /healthz and /readyz, and "
            "a NetworkPolicy closes it: the component monitoring opens it for Prometheus"
        )
    for key in _PROBES:
        if key in found.container:
            yield f"{key}: replaced by ours, of /healthz and /readyz"


def _others(found: Found) -> Iterator[str]:
    metadata = mapping(found.document.content, "metadata")
    for one in items(metadata, f"{found.document.place}: metadata", "ownerReferences"):
        yield (
            f"owner {one.get('kind')} {one.get('name')}: its operator makes the DaemonSet anew if "
            "it is deleted: switch it off there, or migrate that object"
        )
    namespace = metadata.get("namespace")
    if namespace:
        yield f"namespace: {namespace}; ours has one of its own, with the labels of pod security"
    priority = found.pod.get("priorityClassName")
    if priority != "system-node-critical" and found.workload.values is None:
        yield f"priorityClassName: {priority or 'none'}; ours is system-node-critical"
    for one in items(found.pod, found.workload.place, "initContainers"):
        yield f"init container {one.get('name')}: not taken over"
    for one in items(found.pod, found.workload.place, "containers"):
        if one is not found.container:
            yield f"container {one.get('name')}: not taken over"


def _moved(found: Found) -> Iterator[tuple[str, str]]:
    """Yield our volumes whose host paths are elsewhere, as for a kubelet with another root."""
    names = {PLUGIN_DIRECTORY: "device-plugins", _POD_RESOURCES: "pod-resources"}
    place = found.workload.place
    volumes = {str(one.get("name")): one for one in items(found.pod, place, "volumes")}
    for mount in items(found.container, place, "volumeMounts"):
        path = str(mount.get("mountPath", "")).rstrip("/")
        host = mapping(volumes.get(str(mount.get("name")), {}), "hostPath").get("path")
        host = str(host or "")
        if path in names and host.rstrip("/") not in {"", path}:
            yield names[path], host
