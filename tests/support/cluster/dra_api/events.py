"""Requests about Events and evictions, which the tools beside plugins make."""

from collections.abc import Mapping
from typing import Any, Final

from cluster.dra_api.asking import PODS, Case, Object, Step

_EVENTS: Final = "/api/v1/namespaces/default/events"
_NODE: Final = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}


def _event(involved: Object, metadata: Any = None, path: str = _EVENTS, **more: Any) -> Step:
    made = {"metadata": metadata or {"name": "e"}, "involvedObject": involved, **more}
    return Step("POST", path, {"apiVersion": "v1", "kind": "Event", **made})


def _pod(namespace: str) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p"}


_STAMP: Final = "2026-11-27T12:00:00Z"
_USUAL: Final[Object] = {
    "type": "Warning",
    "reason": "DeviceUnhealthy",
    "message": "example.com/gpu: gpu0 is unhealthy",
    "source": {"component": "deviceplugin", "host": "n1"},
    "firstTimestamp": _STAMP,
    "lastTimestamp": _STAMP,
    "count": 1,
}
_A_POD: Final = Step(
    "POST",
    PODS,
    {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "none"}]}},
    is_compared=False,
)


def _evict(**body: Any) -> Step:
    return Step("POST", f"{PODS}/p/eviction", {"apiVersion": "policy/v1", **body})


_NAMED: Final = {"kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}
EVENT_CASES: Final[Mapping[str, Case]] = {
    "an event of a node": [_event(_NODE, **_USUAL)],
    "an event of a pod": [_event(_pod("default"), **_USUAL)],
    "the same event twice": [_event(_NODE, **_USUAL), _event(_NODE, **_USUAL)],
    "an event of a pod elsewhere": [_event(_pod("other"))],
    "an event in a namespace that its node has not": [
        _event(_NODE, path="/api/v1/namespaces/kube-system/events")
    ],
    "an event of a node that says that it is in a namespace": [
        _event({**_NODE, "namespace": "kube-system"})
    ],
    "an event of nothing": [_event({})],
    "an event with a generated name": [_event(_NODE, {"generateName": "device-eviction-"})],
    "an event with capitals and dots in its name": [_event(_NODE, {"name": "N1..E_"})],
    "an event with a slash in its name": [_event(_NODE, {"name": "a/b"})],
    "events of one node": [
        _event(_NODE, **_USUAL),
        Step("GET", f"{_EVENTS}?fieldSelector=involvedObject.name=n1,type=Warning"),
        Step("GET", f"{_EVENTS}?fieldSelector=involvedObject.uid=n2"),
        Step("GET", f"{_EVENTS}?fieldSelector=message=x"),
    ],
    "an eviction of no pod": [_evict(**_NAMED)],
    "an eviction of a pod of another uid": [
        _A_POD,
        _evict(**_NAMED, deleteOptions={"preconditions": {"uid": "another"}}),
    ],
    "an eviction by another name": [
        _A_POD,
        _evict(kind="Eviction", metadata={"name": "q", "namespace": "default"}),
    ],
    "an eviction": [_A_POD, _evict(**_NAMED), Step("GET", f"{PODS}/p")],
    "an eviction that is read": [_A_POD, Step("GET", f"{PODS}/p/eviction")],
    "a dry eviction": [
        _A_POD,
        _evict(**_NAMED, deleteOptions={"dryRun": ["All"]}),
        Step("GET", f"{PODS}/p", is_compared=False),
    ],
}
