"""The devices of a cluster at one time, and what two times differ in."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin.tools._requests import requested
from deviceplugin_cli.fleet._facts import NodeFacts

FORMAT: Final = 1
"""Version of the file."""


@dataclass(frozen=True)
class PodFacts:
    """A pod that has devices."""

    name: str
    """With its namespace."""
    uid: str
    node: str
    phase: str
    restarts: int
    """Of its containers."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """By resource, where the kubelet reports them; none if it does not."""


@dataclass(frozen=True)
class Snapshot:
    """What nodes can give, and which pods have it."""

    nodes: Mapping[str, Mapping[str, int]]
    """Allocatable devices by node and resource."""
    pods: Mapping[str, PodFacts]
    """By name."""

    def lines(self, others: "Snapshot") -> Iterator[str]:
        """Yield what ``others``, which are later, differ in. Pods that are new are not reported."""
        for node in sorted({*self.nodes, *others.nodes}, key=natural_key):
            if node not in others.nodes:
                yield f"node {node}: is gone"
            elif node not in self.nodes:
                yield f"node {node}: is new, with {_counts(others.nodes[node])}"
            else:
                yield from _of_node(node, self.nodes[node], others.nodes[node])
        for name, pod in sorted(self.pods.items()):
            yield from _of_pod(pod, others.pods.get(name))


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "no devices"


def _of_node(node: str, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    for resource in sorted({*before, *after}, key=natural_key):
        old, new = before.get(resource, 0), after.get(resource, 0)
        if old != new:
            yield f"node {node}: {resource}: {old} before, {new} now"


def _of_pod(before: PodFacts, after: PodFacts | None) -> Iterator[str]:
    place = f"pod {before.name} on {before.node}"
    if after is None:
        yield f"{place}: is gone; it had {_counts(before.devices)}"
    elif after.uid != before.uid:
        yield f"{place}: is another pod of this name"
    else:
        if after.phase != before.phase:
            yield f"{place}: {before.phase} before, {after.phase} now"
        if after.restarts != before.restarts:
            yield f"{place}: its containers were restarted"
        for resource in sorted({*before.ids, *after.ids}):
            old, new = before.ids.get(resource), after.ids.get(resource)
            if old and new and old != new:
                yield f"{place}: {resource}: {', '.join(old)} before, {', '.join(new)} now"


def pod_facts(pod: Mapping[str, Any]) -> PodFacts:
    """Return what matters of a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    ids: dict[str, list[str]] = {}
    for container in containers:
        for one in container.get("allocatedResourcesStatus") or ():
            own = [str(each.get("resourceID")) for each in one.get("resources") or ()]
            ids.setdefault(str(one.get("name")), []).extend(own)
    return PodFacts(
        f"{metadata.get('namespace')}/{metadata['name']}",
        str(metadata.get("uid")),
        (pod.get("spec") or {}).get("nodeName") or "",
        str(status.get("phase")),
        sum(int(one.get("restartCount") or 0) for one in containers),
        {name: count for name, count in requested(pod["spec"]).items() if count},
        {name: sorted(found) for name, found in ids.items()},
    )


def of(nodes: Sequence[NodeFacts], pods: Sequence[PodFacts]) -> Snapshot:
    """Return the snapshot of nodes, and of the pods on them that have devices."""
    allocatable = {
        one.name: {
            name: count for name, count in one.healthy.items() if count or one.total.get(name)
        }
        for one in nodes
    }
    held = {one.name: one for one in pods if one.devices and one.node in allocatable}
    return Snapshot(allocatable, held)


def chosen(found: Snapshot, nodes: Sequence[str], wants: Callable[[str], bool]) -> Snapshot:
    """Return a part of a snapshot: some nodes, and some resources."""
    return Snapshot(
        {
            node: {name: count for name, count in own.items() if wants(name)}
            for node, own in found.nodes.items()
            if not nodes or node in nodes
        },
        {
            name: one
            for name, one in found.pods.items()
            if (not nodes or one.node in nodes) and any(map(wants, one.devices))
        },
    )


def written(snapshot: Snapshot) -> str:
    """Return the text of a file."""
    pods = [asdict(one) for one in snapshot.pods.values()]
    return _command_line.to_json(
        _command_line.document(FORMAT, {"nodes": dict(snapshot.nodes), "pods": pods})
    )


def _pod(given: Mapping[str, Any]) -> PodFacts:
    return PodFacts(
        str(given["name"]),
        str(given["uid"]),
        str(given["node"]),
        str(given["phase"]),
        int(given["restarts"]),
        {str(name): int(count) for name, count in given["devices"].items()},
        {str(name): [str(one) for one in ids] for name, ids in given["ids"].items()},
    )


def read(place: str, text: str) -> Snapshot:
    """Return what ``written`` has written; raise ``ConfigError`` for anything else."""
    try:
        found = json.loads(text)
        form = found["format"]
        nodes = {
            str(node): {str(name): int(count) for name, count in own.items()}
            for node, own in found["nodes"].items()
        }
        pods = {str(one["name"]): _pod(one) for one in found["pods"]}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{place}: is not what deviceplugin migrate verify --save writes"
        ) from error
    if form != FORMAT:
        raise ConfigError(f"{place}: has format {form}, not {FORMAT}: save it again")
    return Snapshot(nodes, pods)
