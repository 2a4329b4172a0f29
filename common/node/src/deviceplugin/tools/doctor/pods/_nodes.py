"""Which nodes have the devices that a pod asks for, and who has those that are not free."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from deviceplugin._config.documents.faults import nearest
from deviceplugin.apiserver import ApiServer, ApiServerError, NotFoundError, devices_in
from deviceplugin.checks import Finding, failure, ok, unknown
from deviceplugin.tools._class_names import Names, Object
from deviceplugin.tools._node_devices import (
    API,
    Claimed,
    Count,
    Place,
    Slice,
    claimed_by,
    count,
    slice_of,
    tolerant,
)
from deviceplugin.tools._requests import LIVING, held_of_plugins

_T = TypeVar("_T")
_PAGE: Final = 100

_SHOWN: Final = 5
_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Before the name of any DeviceClass, this is an extended resource too."""


_Counts = Mapping[str, Mapping[str, Count]]
"""What nodes have, by resource and name of the node."""


def look(api: ApiServer, wanted: Mapping[str, int]) -> Iterator[Finding]:
    """Yield for each wanted resource whether a node could have as many, and how many are free."""
    if not wanted:
        return
    try:
        nodes, status = _status(api)
    except ApiServerError as error:
        do = "give this account the right to list nodes, or ask who runs the cluster."
        yield unknown("nodes", f"cannot be read: {error}", do)
        return
    names = Names(_read(api, "deviceclasses", dict) or ())
    slices = _read(api, "resourceslices", partial(slice_of, names=names))
    claims = _read(api, "resourceclaims", partial(claimed_by, names=names))
    if slices is None or claims is None:
        do = "give this account the right to list resourceslices and resourceclaims."
        yield unknown("devices through DRA", "cannot be read", do)
    dra = slices or [], [one for each in claims or () for one in each]
    counts = _by_resource(count(status, {}, *dra))
    fitting = list[str]()
    for resource, wants in sorted(wanted.items()):
        having = {node: one for node, one in counts.get(resource, {}).items() if one.total}
        if not having and (name := _class_of(api, resource)):
            yield ok(resource, f"is given through DRA, by the DeviceClass {name}")
        elif wrong := _impossible(having, counts, nodes, resource, wants):
            yield wrong
        else:
            fitting.append(resource)
    if fitting:
        yield from _free(api, status, dra, {resource: wanted[resource] for resource in fitting})


def _status(api: ApiServer) -> tuple[int, dict[Place, tuple[int, int]]]:
    """Return how many nodes there are, with their capacity and allocatable."""
    nodes, found = 0, {}
    for page in api.pages("/api/v1/nodes"):
        nodes += len(page.items)
        for node in page.items:
            status, name = node.get("status") or {}, node["metadata"]["name"]
            healthy = devices_in(status.get("allocatable") or {})
            for resource, total in devices_in(status.get("capacity") or {}).items():
                found[name, resource] = total, healthy.get(resource, 0)
    return nodes, found


def _read(api: ApiServer, plural: str, reduce: Callable[[Object], _T]) -> list[_T] | None:
    """Return what is kept of objects of DRA; nothing without DRA, None if they cannot be read."""
    try:
        pages = api.pages(f"{API}/{plural}", size=_PAGE)
        found = [tolerant(reduce)(one) for page in pages for one in page.items]
    except NotFoundError:
        return []
    except ApiServerError:
        return None
    return [one for one in found if one is not None]


def _by_resource(counts: Mapping[Place, Count]) -> _Counts:
    found: dict[str, dict[str, Count]] = defaultdict(dict)
    for (node, resource), one in counts.items():
        found[resource][node] = one
    return found


def _class_of(api: ApiServer, resource: str) -> str:
    """Return the DeviceClass that gives ``resource`` through DRA; empty if none is visible."""
    try:
        classes = api.list("/apis/resource.k8s.io/v1/deviceclasses").items
    except ApiServerError:
        return ""
    given = {one["metadata"]["name"]: one["spec"].get("extendedResourceName") for one in classes}
    names = (name for name, own in given.items() if resource in {own, f"{_IMPLICIT}{name}"})
    return next(names, "")


def _impossible(
    having: Mapping[str, Count], counts: _Counts, nodes: int, resource: str, wants: int
) -> Finding | None:
    """Return why no node can ever have the pod as things are; None if one can."""
    if not having:
        near = nearest(resource, counts.keys())
        do = f"did you mean {near}?" if near else "check the name; is its plugin deployed?"
        means = "the plugin does not run on any node, is not registered, or found no device."
        found = f"none of {nodes} nodes has it"
        return failure(resource, found, means=means, do=do)
    most = max(one.healthy for one in having.values())
    if most >= wants:
        return None
    total = max(one.total for one in having.values())
    if total < wants:
        found = f"the pod asks for {wants}, and no node has more than {total}"
        means = "a pod runs on one node, so it waits for ever."
        return failure(resource, found, means=means, do=f"ask for {total} at most.")
    found = f"the pod asks for {wants}, and no node has more than {most} healthy ones"
    means = "devices are unhealthy, or the plugin of their node is away."
    do = "kubectl deviceplugin --problems lists them; their plugin's page has the reasons."
    return failure(resource, found, means=means, do=do)


def _free(
    api: ApiServer,
    status: Mapping[Place, tuple[int, int]],
    dra: tuple[Sequence[Slice], Sequence[Claimed]],
    wanted: Mapping[str, int],
) -> Iterator[Finding]:
    query = {"fieldSelector": f"spec.nodeName!=,{LIVING}"}
    held: Counter[Place] = Counter()
    try:
        for page in api.pages("/api/v1/pods", query):
            for pod in page.items:
                for resource, number in held_of_plugins(pod).items():
                    held[pod["spec"]["nodeName"], resource] += number
    except ApiServerError as error:
        do = "give this account the right to list pods of all namespaces."
        yield unknown("free devices", f"cannot be counted: {error}", do)
        return
    counts = _by_resource(count(status, held, *dra))
    for resource, wants in wanted.items():
        having = {
            node: (one.healthy - (one.held or 0), one.healthy)
            for node, one in counts[resource].items()
            if one.healthy
        }
        best = sorted(having, key=lambda name: -having[name][0])
        shown = ", ".join(
            f"{name} {having[name][0]} of {having[name][1]}" for name in best[:_SHOWN]
        )
        more = f" and {len(best) - _SHOWN} more nodes" if len(best) > _SHOWN else ""
        found = f"the pod asks for {wants}; free: {shown}{more}"
        if having[best[0]][0] >= wants:
            yield ok(resource, f"{found}. What keeps the pod from {best[0]} is something else")
        else:
            means = "other pods have them: the pod starts when enough of one node are free."
            do = "wait, or end pods that hold them: kubectl get pods -A -o wide."
            yield failure(resource, found, means=means, do=do)
