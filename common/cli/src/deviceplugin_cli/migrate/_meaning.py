"""What each key of a DaemonSet means here: a table."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from deviceplugin._config.documents.faults import bounded, printable
from deviceplugin._config.quantities import size_in_bytes
from deviceplugin.kit.migration import Migration
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import mapping

KEPT: Final = "kept by a patch"
_LIMIT: Final = "160Mi"
_REQUEST: Final = "64Mi"
"""What ours needs without devices, rounded up."""
_PRIVILEGED: Final = "-privileged"
"""How the names of components end that make our pod privileged."""


class Place(NamedTuple):
    """Where a value stands, for what its meaning depends on."""

    found: Found
    migration: Migration
    key: str
    """The last key."""


class Meaning(NamedTuple):
    """What a value means, unless it is one of those that are nobody's wish."""

    words: str | Callable[[Any, Place], str]
    """A phrase in which {} is the value, or what returns one; empty if it is nobody's wish."""
    usual: tuple[Any, ...] = ()

    def of(self, value: Any, place: Place) -> str:
        """Return what ``value`` means, in words; nothing if it is nobody's wish."""
        if value in self.usual:
            return ""
        if callable(self.words):
            return self.words(value, place)
        return self.words.format(written(value))


def written(value: Any) -> str:
    """Return a value for a line of a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {written(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(written, value))
    return bounded(printable(str(value)))


def _memory(limit: Any, _place: Place) -> str:
    """Return what a memory limit of a peer would do to our plugin."""
    words = f"{written(limit)}; ours is {_LIMIT}"
    try:
        bytes_ = size_in_bytes(str(limit))
    except ValueError as error:
        return f"{words}, and {limit!r} {error}"
    if bytes_ < size_in_bytes(_REQUEST):
        return f"{words}: with theirs ours would be killed before it registers"
    return (
        words
        if bytes_ >= size_in_bytes(_LIMIT)
        else f"{words}: theirs is too little for many devices"
    )


def _privileged(_value: Any, place: Place) -> str:
    is_ours_too = any(one.endswith(_PRIVILEGED) for one in place.migration.components)
    return "" if is_ours_too else "true; ours is not privileged and has no capabilities"


def _ports(value: Any, _place: Place) -> str:
    numbers = ", ".join(str(one.get("containerPort")) for one in value)
    return (
        f"{numbers}; ours is 9494, with /metrics, /healthz and /readyz, and a NetworkPolicy closes "
        "it: the component monitoring opens it for Prometheus"
    )


def _tolerations(value: Any, _place: Place) -> str:
    kept = f"{KEPT}; without it ours tolerates all taints"
    return "" if any(not one.get("key") for one in value) else kept


def _pull_policy(value: Any, place: Place) -> str:
    is_filled_in = value == "Always" and place.found.workload.tag in {"", "latest"}
    return "" if is_filled_in else KEPT


def _owners(value: Any, _place: Place) -> str:
    names = ", ".join(f"{one.get('kind')} {one.get('name')}" for one in value)
    return f"{names} has made it, and makes it again when it is deleted: migrate that instead"


def _volume(value: Any, _place: Place) -> str:
    """Return nothing for what our pod has too, and for files, which are accounted for as such."""
    host = str(mapping(value, "hostPath").get("path") or "").rstrip("/")
    is_ours = host.endswith(("/device-plugins", "/pod-resources"))
    is_file = bool(mapping(value, "configMap") or mapping(value, "projected"))
    return "" if is_ours or is_file else "not taken over; ours mounts what it needs"


def _label(value: Any, place: Place) -> str:
    """Return what a label or an annotation of the DaemonSet or of its pods means."""
    for pattern, words in _LABELS.items():
        if fnmatchcase(place.key, pattern):
            return words.format(written(value))
    return KEPT


def _pod_label(value: Any, place: Place) -> str:
    spec = mapping(place.found.document.content, "spec")
    selector = mapping(mapping(spec, "selector"), "matchLabels")
    return "" if place.key in selector else _label(value, place)


_AGAIN: Final = "{}: it is applied again when it is deleted, so take it away there"
_LABELS: Final = {
    "meta.helm.sh/release-name": "{}: it belongs to this Helm release, so uninstall that",
    "meta.helm.sh/*": "",
    **dict.fromkeys(
        (
            *("addonmanager.kubernetes.io/mode", "argocd.argoproj.io/instance"),
            *("argocd.argoproj.io/tracking-id", "kustomize.toolkit.fluxcd.io/name"),
            *("helm.toolkit.fluxcd.io/name", "olm.owner", "objectset.rio.cattle.io/id"),
        ),
        _AGAIN,
    ),
    **dict.fromkeys(
        (
            *("app", "k8s-app", "name", "tier", "component", "release", "chart", "heritage"),
            *("version", "app.kubernetes.io/*", "helm.sh/*", "checksum/*", "*/checksum", "rollme"),
            *("kubectl.kubernetes.io/*", "deprecated.daemonset.template.generation"),
            *("pod-template-generation", "controller-revision-hash", "olm.*", "*.rio.cattle.io/*"),
            *("kubernetes.io/cluster-service", "scheduler.alpha.kubernetes.io/critical-pod"),
            *("*.toolkit.fluxcd.io/*", "argocd.argoproj.io/*", "config.kubernetes.io/*"),
        ),
        "",
    ),
    "prometheus.io/*": "{}; ours is scraped with the component monitoring",
    "*.apparmor.security.beta.kubernetes.io/*": "{}; ours has no profile of its own",
    "*seccomp.security.alpha.kubernetes.io/*": "{}; ours has RuntimeDefault",
}
"""Labels and annotations that say whose a pod is, or who writes it."""
_NONE: Final = Meaning("")
_KEEP: Final = Meaning(KEPT)
_NOT_TAKEN: Final = Meaning("{}; not taken over")
_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_SERVER: Final = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generateName"),
    *("generation", "managedFields", "name", "resourceVersion", "selfLink", "uid"),
)
METADATA: Final[Mapping[str, Meaning]] = {
    **dict.fromkeys(_SERVER, _NONE),
    "namespace": Meaning("{}; ours has one of its own, with the labels of pod security"),
    "finalizers": _NOT_TAKEN,
    "ownerReferences": Meaning(_owners),
    "labels.*": Meaning(lambda value, place: _label(value, place).replace(KEPT, "not taken over")),
    "annotations.*": Meaning(
        lambda value, place: _label(value, place).replace(KEPT, "not taken over")
    ),
}
SPEC: Final[Mapping[str, Meaning]] = {
    "selector": _NONE,
    "templateGeneration": _NONE,
    "minReadySeconds": Meaning(KEPT, (0,)),
    "revisionHistoryLimit": Meaning(KEPT, (10,)),
    "updateStrategy.type": Meaning(KEPT, ("RollingUpdate",)),
    "updateStrategy.rollingUpdate.maxUnavailable": _KEEP,
    "updateStrategy.rollingUpdate.maxSurge": Meaning(
        "{}; ours is 0: of two plugins on a node, one takes the resource from the other", (0, "0%")
    ),
}
TEMPLATE: Final[Mapping[str, Meaning]] = {
    **METADATA,
    "namespace": _NONE,
    "labels.*": Meaning(_pod_label),
    "annotations.*": Meaning(_label),
}
_SECURITY: Final[Mapping[str, Meaning]] = {
    "runAsUser": Meaning(
        "{}; ours is root without capabilities, for the kubelet's directory", (0,)
    ),
    "runAsGroup": Meaning("{}; ours is 0", (0,)),
    "runAsNonRoot": Meaning("true; ours is root without capabilities", (False,)),
    "seccompProfile": Meaning("{}; ours is RuntimeDefault", ({"type": "RuntimeDefault"},)),
    "appArmorProfile": Meaning("{}; ours is the runtime's", ({"type": "RuntimeDefault"},)),
    "seLinuxOptions": Meaning(
        "{}; ours is container_device_plugin_t", ({"type": "container_device_plugin_t"},)
    ),
    "windowsOptions": _NOT_TAKEN,
}
POD: Final[Mapping[str, Meaning]] = {
    **dict.fromkeys(("overhead", "priority", "enableServiceLinks"), _NONE),
    **dict.fromkeys(_NAMESPACES, Meaning("true; ours does not need it", (False,))),
    **dict.fromkeys(
        (
            *("affinity", "dnsConfig", "hostAliases", "imagePullSecrets", "runtimeClassName"),
            "schedulingGates",
        ),
        _KEEP,
    ),
    **dict.fromkeys(
        (
            *("activeDeadlineSeconds", "ephemeralContainers", "hostUsers", "hostname", "nodeName"),
            *("hostnameOverride", "readinessGates", "resourceClaims"),
            *("schedulingGroup", "setHostnameAsFQDN", "subdomain", "topologySpreadConstraints"),
        ),
        _NOT_TAKEN,
    ),
    "automountServiceAccountToken": Meaning("true; ours has no token", (False,)),
    "dnsPolicy": Meaning(KEPT, ("ClusterFirst", "ClusterFirstWithHostNet", "Default")),
    "initContainers.*": Meaning("not taken over"),
    "nodeSelector": Meaning(KEPT, ({"kubernetes.io/os": "linux"},)),
    "os": Meaning("{}; ours is for Linux", ({"name": "linux"},)),
    "preemptionPolicy": Meaning("{}; not taken over", ("PreemptLowerPriority",)),
    "priorityClassName": Meaning("{}; ours is system-node-critical", ("system-node-critical", "")),
    "resources": _NOT_TAKEN,
    "restartPolicy": Meaning("{}; ours is Always", ("Always",)),
    "schedulerName": Meaning(KEPT, ("default-scheduler",)),
    "serviceAccount": _NONE,
    "serviceAccountName": Meaning("{}; ours has one of its own, without a token", ("default", "")),
    "terminationGracePeriodSeconds": Meaning("{}; ours is 15, and it stops within 5 s", (30,)),
    "tolerations": Meaning(_tolerations),
    "volumes.*": Meaning(_volume),
    **{f"securityContext.{key}": one for key, one in _SECURITY.items()},
    **dict.fromkeys(
        (
            *("securityContext.fsGroup", "securityContext.fsGroupChangePolicy"),
            *("securityContext.seLinuxChangePolicy", "securityContext.supplementalGroups"),
            *("securityContext.supplementalGroupsPolicy", "securityContext.sysctls"),
        ),
        _NOT_TAKEN,
    ),
}
CONTAINER: Final[Mapping[str, Meaning]] = {
    **dict.fromkeys(("name", "image", "volumeMounts"), _NONE),
    **dict.fromkeys(_PROBES, Meaning("replaced by ours, of /healthz and /readyz")),
    **dict.fromkeys(
        (
            *("lifecycle", "resizePolicy", "restartPolicy", "restartPolicyRules", "stdin"),
            *("stdinOnce", "tty", "volumeDevices", "workingDir"),
        ),
        _NOT_TAKEN,
    ),
    "imagePullPolicy": Meaning(_pull_policy, ("IfNotPresent",)),
    "ports": Meaning(_ports),
    "resources.limits.memory": Meaning(_memory),
    "resources.limits.cpu": Meaning(
        "{}; ours has none, because each pod that wants a device waits for a plugin that is "
        "throttled"
    ),
    "resources.requests.memory": Meaning("{}; ours is " + _REQUEST, (_REQUEST,)),
    "resources.requests.cpu": Meaning("{}; ours is 10m", ("10m", 0.01)),
    "resources.limits.*": _NOT_TAKEN,
    "resources.requests.*": _NOT_TAKEN,
    "resources.claims": _NOT_TAKEN,
    "terminationMessagePath": Meaning("{}; not taken over", ("/dev/termination-log",)),
    "terminationMessagePolicy": Meaning(
        "{}; ours is FallbackToLogsOnError", ("File", "FallbackToLogsOnError")
    ),
    **{f"securityContext.{key}": one for key, one in _SECURITY.items()},
    "securityContext.privileged": Meaning(_privileged, (False,)),
    "securityContext.capabilities.add": Meaning("{}; ours has none"),
    "securityContext.capabilities.drop": _NONE,
    "securityContext.allowPrivilegeEscalation": Meaning("true; ours is false", (False,)),
    "securityContext.readOnlyRootFilesystem": Meaning("false; ours is true", (True,)),
    "securityContext.procMount": Meaning("{}; not taken over", ("Default",)),
}
ELSEWHERE: Final = ("template", "containers", "command", "args", "env", "envFrom")
"""Keys that are accounted for where they are read, the last four by the plugins."""
CHART: Final[Mapping[str, tuple[str, str]]] = {
    **{
        key: ("PodSpec", key)
        for key in (
            *("affinity", "dnsConfig", "dnsPolicy", "hostAliases", "imagePullSecrets"),
            *("nodeSelector", "priorityClassName", "runtimeClassName", "tolerations"),
            *("schedulerName", "terminationGracePeriodSeconds", *_NAMESPACES),
            *("topologySpreadConstraints",),
        )
    },
    **{key: ("Container", key) for key in ("resources", "securityContext", "lifecycle", *_PROBES)},
    "podSecurityContext": ("PodSpec", "securityContext"),
    "image.pullPolicy": ("Container", "imagePullPolicy"),
    "imagePullPolicy": ("Container", "imagePullPolicy"),
    "updateStrategy": ("DaemonSetSpec", "updateStrategy"),
    "podAnnotations": ("ObjectMeta", "annotations"),
    "podLabels": ("ObjectMeta", "labels"),
}
"""Usual keys of Helm values, and the type and the field of a DaemonSet that they become."""
OF_CHARTS: Final[Mapping[str, str]] = {
    "nameOverride": "not taken over",
    "fullnameOverride": "not taken over",
    "namespaceOverride": "not taken over; ours has a namespace of its own",
    "serviceAccount": "ours has one of its own, without a token",
    "rbac": "ours asks nothing of the API server",
    "commonLabels": "not taken over",
}
"""Usual keys of Helm values that no DaemonSet has, and what becomes of them."""
