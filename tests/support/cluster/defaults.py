"""What the API server adds to an object and writes anew, as far as kubectl comes to see it.

A manifest that is applied again is "unchanged" only if none of this contradicts it: that is what
the stand-in for a cluster needs it for.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cluster.kinds import Kind, Object
from deviceplugin_testing.simulator._control_plane.quantities import canonical

_POD = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_UPDATES = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


def add_defaults(kind: Kind, made: Object) -> None:
    if kind.name in _ADD:
        _ADD[kind.name](made)


def _of_pod(made: Object) -> None:
    _pod(made["spec"])
    _add(made["spec"], {"serviceAccountName": "default"})
    made["status"] = {"phase": "Pending"}


def _of_daemon_set(made: Object) -> None:
    _pod(made["spec"]["template"]["spec"])
    _add(made["spec"], {"revisionHistoryLimit": 10, "updateStrategy": _UPDATES})
    made.setdefault("status", {})


def _of_namespace(made: Object) -> None:
    _add(made["metadata"], {"labels": {}})
    made["metadata"]["labels"]["kubernetes.io/metadata.name"] = made["metadata"]["name"]
    made.setdefault("status", {"phase": "Active"})


def _of_network_policy(made: Object) -> None:
    for rule in [*made["spec"].get("ingress", ()), *made["spec"].get("egress", ())]:
        for port in rule.get("ports", ()):
            _add(port, {"protocol": "TCP"})


def _of_pod_monitor(made: Object) -> None:
    for endpoint in made["spec"]["podMetricsEndpoints"]:
        for relabeling in endpoint.get("relabelings", ()):
            _add(relabeling, {"action": "replace"})


def _pod(spec: Object) -> None:
    _add(spec, {**_POD, "securityContext": {}})
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        _container(container)
    for volume in spec.get("volumes", ()):
        for source in ("configMap", "projected"):
            _add(volume.get(source), {"defaultMode": 420})
        _add(volume.get("hostPath"), {"type": ""})


def _container(container: Object) -> None:
    _add(container, {**_CONTAINER, "resources": {}})
    for port in container.get("ports", ()):
        _add(port, {"protocol": "TCP"})
    for one in container.get("env", ()):
        _add(one.get("valueFrom", {}).get("fieldRef"), {"apiVersion": "v1"})
    for probe in _probes(container):
        _add(probe, _PROBE)
        _add(probe.get("httpGet"), {"path": "/", "scheme": "HTTP"})
    resources = container["resources"]
    for name in ("limits", "requests"):
        _write_anew(resources.get(name, {}))
    _add(resources.setdefault("requests", {}), resources.get("limits", {}))


def _probes(container: Object) -> Iterator[Object]:
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        if name in container:
            yield container[name]


def _add(place: Object | None, defaults: Object) -> None:
    for name, value in defaults.items() if place is not None else ():
        if place is not None and name not in place:
            place[name] = dict(value) if isinstance(value, dict) else value


def _write_anew(amounts: dict[str, Any]) -> None:
    for name, amount in amounts.items():
        amounts[name] = canonical(amount)


_ADD: Mapping[str, Callable[[Object], None]] = {
    "Pod": _of_pod,
    "DaemonSet": _of_daemon_set,
    "Namespace": _of_namespace,
    "ResourceQuota": lambda made: _write_anew(made["spec"].get("hard", {})),
    "NetworkPolicy": _of_network_policy,
    "PodMonitor": _of_pod_monitor,
}
