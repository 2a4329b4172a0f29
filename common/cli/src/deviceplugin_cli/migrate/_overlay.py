"""Writing the overlay: patches for what is kept of a peer's pod, and comments on the rest."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Final

from deviceplugin._config.quantities import size_in_bytes
from deviceplugin.kit.migration import Migration
from deviceplugin_cli.migrate._workloads import Found, items, mapping, strings

PLUGIN_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
_LIMIT: Final = "160Mi"
_REQUEST: Final = "64Mi"
"""What ours needs without devices, rounded up."""
_KEPT: Final = ("nodeSelector", "affinity", "runtimeClassName", "imagePullSecrets")
_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_PRIVILEGED: Final = "-privileged"
"""How the names of components end that make our pod privileged."""
_OUR_NODES: Final[tuple[Mapping[str, str], ...]] = ({}, {"kubernetes.io/os": "linux"})
_WIDTH: Final = 96
_ODD: Final = re.compile("[^a-z0-9]+")


@dataclass
class Comparison:
    """Patches that keep what a peer's pod has, and differences in words."""

    pod: dict[str, Any] = field(default_factory=dict)
    """Fields of the pod's specification to patch."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    """Volumes to patch, by name."""
    differences: list[str] = field(default_factory=list)


def compare(found: Found, migration: Migration) -> Comparison:
    """Return what is kept of a peer's pod, and what is different."""
    is_privileged = any(one.endswith(_PRIVILEGED) for one in migration.components)
    result = Comparison()
    for key in _KEPT:
        value = found.pod.get(key)
        if value and not (key == "nodeSelector" and value in _OUR_NODES):
            result.pod[key] = value
            result.differences.append(f"{key}: kept by a patch")
    result.differences += [
        *_tolerations(found),
        *_memory(found.container),
        *_rights(found, is_privileged=is_privileged),
        *_network(found),
        *_others(found),
    ]
    for name, path in _moved(found):
        result.volumes.append({"name": name, "hostPath": {"path": path}})
        result.differences.append(f"host path {path}: kept by a patch, for the volume {name}")
    return result


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
    namespace = mapping(found.document.content, "metadata").get("namespace")
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


def overlay(
    migration: Migration, comparison: Comparison, deployments: str, head: Sequence[str]
) -> str:
    """Return the text of ``kustomization.yaml``."""
    differences = [f"* {one}" for one in (*migration.differences, *comparison.differences)]
    comments = [*head, "", f"Differences ({len(differences)}):", *differences]
    kustomization = _kustomization(migration, comparison, deployments)
    return f"{''.join(map(_comment, comments))}{_yaml(kustomization)}"


def _comment(text: str) -> str:
    """Return lines of a comment. Manifests may have any characters; commands are not wrapped."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    if text.startswith(" "):
        return f"# {printable}\n"
    indent = "  " if text.startswith("* ") else ""
    lines = wrap(
        printable, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines) or "#\n"


def _kustomization(
    migration: Migration, comparison: Comparison, deployments: str
) -> Mapping[str, Any]:
    root = deployments.rstrip("/")
    components = [f"{root}/components/{name}" for name in dict.fromkeys(migration.components)]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": f"{migration.plugin}-device-plugin",
        "resources": [f"{root}/{migration.plugin}"],
        **({"components": components} if components else {}),
        "patches": [
            {"target": {"kind": kind, **({"name": name} if name else {})}, "patch": _yaml(patch)}
            for kind, name, patch in _patches(migration, comparison)
        ],
    }


def _patches(
    migration: Migration, comparison: Comparison
) -> Iterator[tuple[str, str, Sequence[Any] | Mapping[str, Any]]]:
    text = _yaml(migration.configuration)
    # The path is last, because kustomize cuts the newline at the end of a patch.
    replaced = [{"op": "replace", "value": text, "path": "/data/config.yaml"}]
    yield "ConfigMap", "config", replaced
    for name, data in migration.config_maps.items():
        yield "ConfigMap", name, [{"op": "replace", "value": dict(data), "path": "/data"}]
    pod = {**comparison.pod, **_container(migration), **_volumes(migration, comparison)}
    if pod:
        names = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "any"}}
        yield "DaemonSet", "", {**names, "spec": {"template": {"spec": pod}}}


def _container(migration: Migration) -> dict[str, Any]:
    container: dict[str, Any] = {}
    if migration.variables:
        pairs = migration.variables.items()
        container["env"] = [{"name": name, "value": value} for name, value in pairs]
    if migration.mounts:
        container["volumeMounts"] = [
            {"name": _volume(path), "mountPath": path, "readOnly": True}
            for path in migration.mounts
        ]
    return {"containers": [{"name": "device-plugin", **container}]} if container else {}


def _volumes(migration: Migration, comparison: Comparison) -> dict[str, Any]:
    mounted = [
        {"name": _volume(path), "hostPath": {"path": host, "type": "Directory"}}
        for path, host in migration.mounts.items()
    ]
    volumes = [*comparison.volumes, *mounted]
    return {"volumes": volumes} if volumes else {}


def _volume(path: str) -> str:
    return f"host-{_ODD.sub('-', path.lower()).strip('-')}"[:63].rstrip("-")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes strings of several lines as blocks."""

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    written: str = yaml.dump(
        value,
        Dumper=Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=90,
    )
    return written
