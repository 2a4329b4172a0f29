"""What the API server says of nodes, of the plugins' pods, and of the DaemonSets that make them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from deviceplugin._config.documents.faults import suggestion
from deviceplugin._inventory.validation import natural_key
from deviceplugin.apiserver import ApiServerError, ForbiddenError, InvalidError
from deviceplugin.checks import Finding, Verdict, failure, unknown, warning
from deviceplugin.errors import ConfigError
from deviceplugin_cli.diagnosis._masks import said
from deviceplugin_cli.diagnosis._pods import SELECTOR, PluginPod, plugin_pod
from deviceplugin_cli.fleet._facts import NodeFacts
from deviceplugin_cli.fleet._fleet import Fleet, Row, unhealthy
from deviceplugin_cli.fleet._question import Question, Reader, answer

_Devices = Mapping[str, Mapping[str, Row | None]]
"""What nodes have of each resource, by name; None of one that they had."""
_FEW: Final = 20
"""Pods whose Events are read."""
_NOT_READY: Final = "the control plane does not hear of this node, and schedules no pods to it."
DAEMON_SETS: Final = "daemonsets"
_RIGHTS: Final = "allow it: common/docs/fleet.md#rights has the commands."


class Located(NamedTuple):
    """A finding, where it was made, and by which check."""

    check: str
    finding: Finding
    node: str = ""
    pod: str = ""


class Asked(NamedTuple):
    """What somebody wants to know about: all plugins, those of a node, or those of a resource."""

    node: str = ""
    resource: str = ""
    """A name, or a pattern."""
    namespace: str = ""
    selector: str = SELECTOR

    def path(self, group: str, plural: str) -> str:
        """Return the path of a list of objects."""
        space = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"/{group}{space}/{plural}"

    def wants(self, resource: str) -> bool:
        return not self.resource or fnmatchcase(resource, self.resource)


@dataclass(slots=True)
class Cluster:
    """What was read."""

    nodes: Mapping[str, NodeFacts] | None = None
    """By name; None if they are unknown."""
    having: Collection[str] = ()
    """The nodes that have, or had, what is asked for."""
    pods: Sequence[PluginPod] = ()
    """Those that do not run come first."""
    located: list[Located] = field(default_factory=list)


def read_cluster(asked: Asked, reader: Reader) -> Cluster:
    """Return what the API server says, as far as this user may read it.

    ``ConfigError`` is raised for a node that does not exist; ``ApiServerError`` if nobody answers,
    or pods may not be listed.
    """
    cluster = Cluster()
    _read_nodes(asked, reader, cluster)
    pods = _pods(asked, reader)
    if asked.resource and (having := cluster.having):
        pods = [pod for pod in pods if pod.node in having or pod.problems]
    cluster.pods = sorted(pods, key=lambda pod: (not pod.problems, natural_key(pod.node), pod.name))
    cluster.located += _of_pods(asked, cluster, reader)
    cluster.located += _of_daemon_sets(asked, reader)
    return cluster


def _read_nodes(asked: Asked, reader: Reader, cluster: Cluster) -> None:
    question = Question(nodes=[asked.node] if asked.node else [], pods=False)
    try:
        fleet = answer(question, reader)
    except ForbiddenError as error:
        cluster.located.append(Located("rights", unknown("nodes", str(error), _RIGHTS)))
        return
    if asked.node and fleet.nodes is not None and not fleet.nodes:
        known = reader.read("/api/v1/nodes", "nodes", lambda one: str(one["metadata"]["name"]))
        raise ConfigError(f"no node {asked.node!r}: {suggestion(asked.node, sorted(known))}")
    if asked.resource in {one.name for one in fleet.nodes or ()}:
        raise ConfigError(f"{asked.resource} is a node: give --node {asked.resource}")
    devices: dict[str, dict[str, Row | None]] = {
        one.name: dict.fromkeys(one.total) for one in fleet.nodes or ()
    }
    for row in fleet.rows:
        devices.setdefault(row.node, {})[row.resource] = row
    cluster.having = {name for name, found in devices.items() if any(map(asked.wants, found))}
    cluster.located += _of_fleet(asked, fleet, devices)
    if fleet.nodes is not None:
        cluster.nodes = {one.name: one for one in fleet.nodes}


def _of_fleet(asked: Asked, fleet: Fleet, devices: _Devices) -> Iterator[Located]:
    for text in fleet.unknown:
        yield Located("rights", unknown("the cluster", text, _RIGHTS))
    for one in fleet.objects or ():
        if not one.ready:
            found = said(f"{one.reason}: {one.message}")
            means = "the operator has not done what the object asks for."
            do = f"kubectl describe deviceplugin {one.name}"
            yield Located(
                "operator", failure(f"DevicePlugin {one.name}", found, means=means, do=do)
            )
    for node in fleet.nodes or ():
        yield from _of_node(asked, node, devices[node.name], fleet.doubt)
    names = {name for found in devices.values() for name in found}
    if asked.resource and fleet.nodes is not None and not any(map(asked.wants, names)):
        where = f"node {asked.node}" if asked.node else "no node"
        verb = "has never had" if asked.node else "has ever had"
        found = f"{where} {verb} it since its kubelet started"
        means = "no plugin has registered it, or its name is another."
        do = f"{suggestion(asked.resource, sorted(names))} If the name is right, see the pods."
        wrong = failure(asked.resource, found + fleet.doubt, means=means, do=do)
        yield Located("resource", _unless_dra(wrong, fleet.doubt))


def _unless_dra(found: Finding, doubt: str) -> Finding:
    return unknown(found.looked_at, found.found, _RIGHTS) if doubt else found


def _of_node(
    asked: Asked, node: NodeFacts, devices: Mapping[str, Row | None], doubt: str
) -> Iterator[Located]:
    if node.fault:
        do = f"kubectl describe node {node.name}; on the node: journalctl --unit kubelet."
        found = failure(node.name, node.fault, means=_NOT_READY, do=do)
        yield Located("node", found, node.name)
    for resource in filter(asked.wants, devices):
        row = devices[resource]
        if row and (text := row.problem.removeprefix(node.fault).removeprefix("; ")):
            short = unhealthy(row.healthy, row.total)
            text = text.replace(short, f"{short} of {row.total}", 1) if short else text
            found = _shortage(resource, text, row.healthy)
            yield Located("devices", _unless_dra(found, doubt), node.name)
        elif not row and (asked.resource or asked.node):
            found = _shortage(resource, f"0 devices now{doubt}", 0)
            yield Located("devices", _unless_dra(found, doubt), node.name)


def _shortage(resource: str, found: str, healthy: int) -> Finding:
    means = "the kubelet cannot allocate these; new pods that need one wait or are rejected."
    do = "see the other findings; without one, the plugin's log has the reasons."
    kind = warning if healthy else failure
    return kind(resource, found, means=means, do=do)


def _pods(asked: Asked, reader: Reader) -> list[PluginPod]:
    query = {"labelSelector": asked.selector}
    if asked.node:
        query["fieldSelector"] = f"spec.nodeName={asked.node}"
    try:
        return reader.read(asked.path("api/v1", "pods"), "plugins' pods", plugin_pod, query)
    except ForbiddenError as error:
        hint = "" if asked.namespace else "; --namespace NAME needs it only there"
        raise ForbiddenError(f"needs list pods: {error}{hint}", status=error.status) from error
    except InvalidError as error:
        raise ConfigError(f"--selector {asked.selector}: {error}") from error


def _of_pods(asked: Asked, cluster: Cluster, reader: Reader) -> Iterator[Located]:
    left = _FEW
    for pod in cluster.pods:
        for finding in pod.problems:
            if finding.verdict is Verdict.FAILURE and ": " not in finding.found and left:
                left -= 1
                more = _event(asked, pod.namespace, pod.uid, reader)
                finding = replace(finding, found=more or finding.found)  # noqa: PLW2901
            yield Located("pod", finding, pod.node, str(pod))
    if not cluster.pods:
        where = [f"on node {asked.node}"] if asked.node else []
        where += [f"in namespace {asked.namespace}"] if asked.namespace else []
        found = f"no such pod {' '.join(where) or 'in the cluster'}"
        means = "no plugin runs there, or its pods have other labels: those of another vendor do."
        do = "deploy one, see why its DaemonSet has no pod there, or give --selector LABELS."
        finding = failure(asked.selector, found, means=means, do=do)
        yield Located("pod", finding, asked.node)


def _event(asked: Asked, namespace: str, uid: str, reader: Reader) -> str:
    """Return the last warning about an object; nothing if there is none, or it may not be read."""
    path = asked._replace(namespace=namespace).path("api/v1", "events")
    query = {"fieldSelector": f"involvedObject.uid={uid}"}
    try:
        found = reader.read(path, "events", _warning, query)
    except ApiServerError:
        return ""
    return said(max(found, default=("", ""))[1])


def _warning(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return when it was seen last, and what it says; nothing of one that is not a warning."""
    if event.get("type") != "Warning":
        return "", ""
    when = event.get("lastTimestamp") or event.get("eventTime") or ""
    return str(when), " ".join(f"{event.get('reason')}: {event.get('message')}".split())


class _DaemonSet(NamedTuple):
    place: tuple[str, str]
    uid: str
    wanted: int
    there: int
    is_plugin: bool


def _daemon_set(found: Mapping[str, Any]) -> _DaemonSet:
    metadata, status = found["metadata"], found.get("status") or {}
    labels = (found["spec"]["template"].get("metadata") or {}).get("labels") or {}
    key, _, value = SELECTOR.partition("=")
    wanted, there = (int(status.get(f"{n}NumberScheduled") or 0) for n in ("desired", "current"))
    place = metadata["namespace"], metadata["name"]
    return _DaemonSet(place, metadata.get("uid", ""), wanted, there, labels.get(key) == value)


def _of_daemon_sets(asked: Asked, reader: Reader) -> Iterator[Located]:
    if asked.selector != SELECTOR:
        return
    try:
        path = asked.path("apis/apps/v1", DAEMON_SETS)
        found = [one for one in reader.read(path, DAEMON_SETS, _daemon_set) if one.is_plugin]
    except ApiServerError as error:
        yield Located("rights", unknown(DAEMON_SETS, str(error), _RIGHTS))
        return
    for one in found:
        namespace, name = one.place
        do = f"kubectl --namespace {namespace} describe daemonset {name}"
        if one.there < one.wanted:
            event = _event(asked, namespace, one.uid, reader)
            text = f"has {one.there} pods, and wants {one.wanted}"
            means = "its pods cannot be created: a policy, a quota or the account forbids it."
            finding = failure(
                f"{namespace}/{name}", "; ".join(filter(None, [text, event])), means=means, do=do
            )
            yield Located("daemonset", finding)
        elif not one.wanted and not asked.node:
            means = "the plugin runs nowhere: its nodeSelector or affinity fits no node."
            do = f"{do}, and compare with kubectl get nodes --show-labels"
            yield Located(
                "daemonset", warning(f"{namespace}/{name}", "fits no node", means=means, do=do)
            )
