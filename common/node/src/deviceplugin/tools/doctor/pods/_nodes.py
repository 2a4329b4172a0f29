"""Which nodes have the devices that a pod asks for, and who has those that are not free."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from deviceplugin._config.documents.faults import nearest
from deviceplugin.apiserver import ApiServer, ApiServerError, devices_in
from deviceplugin.checks import Finding, failure, ok, unknown
from deviceplugin.tools._requests import LIVING, requested

_SHOWN: Final = 5
_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Before the name of any DeviceClass, this is an extended resource too."""


class _Node(NamedTuple):
    name: str
    total: Mapping[str, int]
    healthy: Mapping[str, int]


def look(api: ApiServer, wanted: Mapping[str, int]) -> Iterator[Finding]:
    """Yield for each wanted resource whether a node could have as many, and how many are free."""
    if not wanted:
        return
    try:
        nodes = [_node(one) for page in api.pages("/api/v1/nodes") for one in page.items]
    except ApiServerError as error:
        do = "give this account the right to list nodes, or ask who runs the cluster."
        yield unknown("nodes", f"cannot be read: {error}", do)
        return
    fitting = list[str]()
    for resource, count in sorted(wanted.items()):
        # As the scheduler does: where nothing is allocatable, it looks for devices of DRA.
        has_it = any(one.healthy.get(resource) for one in nodes)
        if not has_it and (name := _class_of(api, resource)):
            some = any(one.total.get(resource) for one in nodes)
            more = "; device plugins have no healthy one" if some else ""
            yield ok(resource, f"is given through DRA, by the DeviceClass {name}{more}")
        elif (wrong := _impossible(nodes, resource, count)) is not None:
            yield wrong
        else:
            fitting.append(resource)
    if fitting:
        yield from _free(api, nodes, {resource: wanted[resource] for resource in fitting})


def _class_of(api: ApiServer, resource: str) -> str:
    """Return the DeviceClass that gives ``resource`` through DRA; empty if none is visible."""
    try:
        classes = api.list("/apis/resource.k8s.io/v1/deviceclasses").items
    except ApiServerError:
        return ""
    given = {one["metadata"]["name"]: one["spec"].get("extendedResourceName") for one in classes}
    names = (name for name, own in given.items() if resource in {own, f"{_IMPLICIT}{name}"})
    return next(names, "")


def _node(node: Mapping[str, Any]) -> _Node:
    status = node.get("status") or {}
    total, healthy = (devices_in(status.get(key) or {}) for key in ("capacity", "allocatable"))
    return _Node(node["metadata"]["name"], total, healthy)


def _impossible(nodes: list[_Node], resource: str, count: int) -> Finding | None:
    """Return why no node can ever have the pod as things are; None if one can."""
    having = [one for one in nodes if one.total.get(resource)]
    if not having:
        near = nearest(resource, {name for one in nodes for name in one.total})
        do = f"did you mean {near}?" if near else "check the name; is its plugin deployed?"
        means = "the plugin does not run on any node, is not registered, or found no device."
        found = f"none of {len(nodes)} nodes has it"
        return failure(resource, found, means=means, do=do)
    best = max(having, key=lambda one: one.healthy.get(resource, 0))
    most = best.healthy.get(resource, 0)
    if most >= count:
        return None
    total = max(one.total[resource] for one in having)
    if total < count:
        found = f"the pod asks for {count}, and no node has more than {total}"
        means = "a pod runs on one node, so it waits for ever."
        return failure(resource, found, means=means, do=f"ask for {total} at most.")
    found = f"the pod asks for {count}, and no node has more than {most} healthy ones"
    means = "others are unhealthy or still held through DRA, or the plugin of their node is away."
    do = "kubectl deviceplugin --problems lists them; their plugin's page has the reasons."
    return failure(resource, found, means=means, do=do)


def _free(api: ApiServer, nodes: list[_Node], wanted: Mapping[str, int]) -> Iterator[Finding]:
    query = {"fieldSelector": f"spec.nodeName!=,{LIVING}"}
    held: Counter[tuple[str, str]] = Counter()
    try:
        for page in api.pages("/api/v1/pods", query):
            for pod in page.items:
                for resource, count in requested(pod["spec"]).items():
                    held[pod["spec"]["nodeName"], resource] += count
    except ApiServerError as error:
        do = "give this account the right to list pods of all namespaces."
        yield unknown("free devices", f"cannot be counted: {error}", do)
        return
    for resource, count in wanted.items():
        having = {
            one.name: (one.healthy[resource] - held[one.name, resource], one.healthy[resource])
            for one in nodes
            if one.healthy.get(resource)
        }
        best = sorted(having, key=lambda name: -having[name][0])
        shown = ", ".join(
            f"{name} {having[name][0]} of {having[name][1]}" for name in best[:_SHOWN]
        )
        more = f" and {len(best) - _SHOWN} more nodes" if len(best) > _SHOWN else ""
        found = f"the pod asks for {count}; free: {shown}{more}"
        if having[best[0]][0] >= count:
            yield ok(resource, f"{found}. What keeps the pod from {best[0]} is something else")
        else:
            means = "other pods have them: the pod starts when enough of one node are free."
            do = "wait, or end pods that hold them: kubectl get pods -A -o wide."
            yield failure(resource, found, means=means, do=do)
