"""Requests about claims, templates, device classes and pods."""

from collections.abc import Callable, Mapping
from typing import Any

from cluster.dra_api.asking import (
    CLAIMS,
    CLASSES,
    GROUP,
    MERGE,
    PODS,
    TEMPLATES,
    Case,
    Object,
    Step,
    edited,
)


def a_claim(**request: Any) -> Object:
    """Return a claim with one request; by default for one device of a class."""
    request = request or {"name": "a", "exactly": _G}
    made: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**made, "metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}


_G = {"deviceClassName": "g"}


def _asking(**request: Any) -> Case:
    return [Step("POST", CLAIMS, a_claim(**request))]


def _request(**exactly: Any) -> Case:
    return _asking(name="a", exactly={**_G, **exactly})


def _claim(**devices: Any) -> Case:
    made = a_claim()
    made["spec"]["devices"].update(devices)
    return [Step("POST", CLAIMS, made)]


def _with_status(edit: Callable[[Object], Any]) -> Step:
    return Step("PUT", f"{CLAIMS}/c/status", edited(edit))


_ALLOCATED: Object = {
    "allocation": {
        "devices": {
            "results": [
                {"request": "a", "driver": "g.example.com", "pool": "n1/x", "device": "gary"}
            ]
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        },
    },
    "reservedFor": [{"resource": "pods", "name": "x", "uid": "u"}],
}


def _reserved(count: int) -> list[Object]:
    return [{"resource": "pods", "name": f"x{one}", "uid": f"u{one}"} for one in range(count)]


_ONE_CLAIM = Step("POST", CLAIMS, a_claim())
_ALLOCATE = _with_status(lambda x: x.update(status=_ALLOCATED))
_FINALIZER = Step(
    "PATCH",
    f"{CLAIMS}/c",
    {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}},
    MERGE,
)
_READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Prepared",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def _status(*conditions: Object, **fields: Any) -> Object:
    own = {"driver": "g.example.com", "pool": "n1/x", "device": "gary"}
    return {**own, **({"conditions": conditions} if conditions else {}), **fields}


def _put(place: str, value: Any, op: str = "add") -> Object:
    return {"op": op, "path": f"/status/devices{place}", "value": value}


def _edit_status(operation: Object) -> Step:
    return Step("PATCH", f"{CLAIMS}/c/status", [operation], "application/json-patch+json")


_STATUSES: Mapping[str, list[Object]] = {
    "device": [_status(_READY, data={"a": 1}, networkData={"interfaceName": "eth0"})],
    "device without conditions": [_status(other="x")],
    "device twice": [_status(), _status()],
    "device that it does not have": [_status(device="gina"), _status(pool="n1")],
    "share that it does not have": [_status(shareID="5c3f5d0c-0000-4000-8000-000000000000")],
    "device with 9 conditions": [_status(*({**_READY, "type": f"T{n}"} for n in range(9)))],
    "device with a condition twice": [_status(_READY, _READY)],
    "device with an empty condition": [_status({"type": "", "status": ""})],
    "device with a bad condition": [
        _status({**_READY, "type": "a b", "status": "Yes", "reason": "too hot"})
    ],
    "device with long words": [
        _status({**_READY, "reason": "a" * 1025, "message": "a" * (32 * 1024 + 1)})
    ],
    "device with a list of data": [_status(data=[1])],
    "device with much data": [_status(data={"a": "b" * 10240})],
}
CLAIM_CASES: Mapping[str, Case] = {
    "a claim": [_ONE_CLAIM, Step("GET", f"{CLAIMS}/c/status")],
    "a claim with a status": [Step("POST", CLAIMS, {**a_claim(), "status": _ALLOCATED})],
    "a request for capacity": _request(capacity={"requests": {"shares": "1024Mi", "x-y": "-1"}}),
    "a request for capacity that is none": _request(capacity={"requests": {"shares": "x"}}),
    "a request without a name": _asking(exactly=_G),
    "a request for nothing": _asking(name="a"),
    "a request for two things": _asking(name="a", exactly=_G, firstAvailable=[{"name": "b", **_G}]),
    "sub-requests": _asking(
        name="a", firstAvailable=[{"name": "b", **_G}, {"name": "c", **_G, "count": 2}]
    ),
    "a bad sub-request": _asking(name="a", firstAvailable=[{"name": "B"}]),
    "a request without a class": _request(deviceClassName=""),
    "a request of a class with a capital": _request(deviceClassName="G"),
    "a request for 0": _request(count=0),
    "a request for -1": _request(count=-1),
    "a request in an unknown mode": _request(allocationMode="Foo"),
    "a request for all": _request(allocationMode="All"),
    "a request for all of 2": _request(allocationMode="All", count=2),
    "a request as an administrator": _request(adminAccess=True),
    "a toleration": _request(tolerations=[{"key": "a"}]),
    "a toleration of everything": _request(tolerations=[{"operator": "Exists"}]),
    "a toleration with an unknown operator": _request(
        tolerations=[{"key": "a", "operator": "Foo"}]
    ),
    "a toleration with a value too much": _request(
        tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]
    ),
    "a toleration with a bad key, value and effect": _request(
        tolerations=[{"key": "a b", "value": "c d", "effect": "Foo"}]
    ),
    "a request twice": _claim(requests=a_claim()["spec"]["devices"]["requests"] * 2),
    "33 requests": _claim(requests=a_claim()["spec"]["devices"]["requests"] * 33),
    "a configuration": _claim(
        config=[{"opaque": {"driver": "g.example.com", "parameters": {"a": 1}}, "requests": ["a"]}]
    ),
    "a configuration of an unknown request": _claim(
        config=[{"opaque": {"driver": "g", "parameters": {"a": 1}}, "requests": ["zz"]}]
    ),
    "a configuration of nothing": _claim(config=[{}]),
    "a configuration with parameters that are a list": _claim(
        config=[{"opaque": {"driver": "g", "parameters": [1]}}]
    ),
    "a configuration without parameters": _claim(config=[{"opaque": {"driver": "g"}}]),
    "a constraint": _claim(constraints=[{"matchAttribute": "a.b/c"}]),
    "a constraint of other devices": _claim(
        constraints=[{"requests": ["a", "z"], "distinctAttribute": "a.b/c"}]
    ),
    "a constraint of nothing": _claim(constraints=[{"requests": ["a"]}]),
    "a constraint of two kinds": _claim(
        constraints=[{"matchAttribute": "a.b/c", "distinctAttribute": "a.b/c"}]
    ),
    "a constraint without a domain": _claim(constraints=[{"matchAttribute": "c"}]),
    "a constraint with a bad name": _claim(constraints=[{"matchAttribute": "a_b/c-d"}]),
    "33 constraints": _claim(constraints=[{"matchAttribute": "a.b/c"}] * 33),
    "a status by PUT to the claim": [
        _ONE_CLAIM,
        Step("PUT", f"{CLAIMS}/c", edited(lambda x: x.update(status=_ALLOCATED))),
    ],
    "an allocation": [_ONE_CLAIM, _ALLOCATE],
    "a reservation without an allocation": [
        _ONE_CLAIM,
        _with_status(lambda x: x.update(status={"reservedFor": _ALLOCATED["reservedFor"]})),
    ],
    "the end of an allocation": [
        *(_ONE_CLAIM, _ALLOCATE),
        _with_status(lambda x: x.update(status={})),
    ],
    "a finalizer": [
        _ONE_CLAIM,
        _FINALIZER,
        Step("DELETE", f"{CLAIMS}/c"),
        Step("DELETE", f"{CLAIMS}/c"),
        Step("PATCH", f"{CLAIMS}/c", {"metadata": {"finalizers": None}}, MERGE),
        Step("GET", f"{CLAIMS}/c"),
    ],
    "a reservation twice": [
        *(_ONE_CLAIM, _ALLOCATE),
        _with_status(lambda x: x["status"].update(reservedFor=_ALLOCATED["reservedFor"] * 2)),
    ],
    **{
        f"a claim's {name}": [*(_ONE_CLAIM, _ALLOCATE), _edit_status(_put("", devices))]
        for name, devices in _STATUSES.items()
    },
    "a claim's device by JSON patches": [
        *(_ONE_CLAIM, _ALLOCATE),
        _edit_status(_put("", [_status()])),
        _edit_status(_put("/0", _status(_READY), "replace")),
        _edit_status(_put("/-", _status(device="gina"))),
        _edit_status(_put("/1", _status(), "replace")),
        _edit_status(_put("/0", None, "remove")),
        _edit_status({"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}),
    ],
    "a claim's device after the end of its allocation": [
        *(_ONE_CLAIM, _ALLOCATE),
        _edit_status(_put("", [_status()])),
        _with_status(lambda x: x["status"].update(allocation=None, reservedFor=[])),
    ],
    "257 reservations": [
        *(_ONE_CLAIM, _ALLOCATE),
        _with_status(lambda x: x["status"].update(reservedFor=_reserved(257))),
    ],
    "a claim in no namespace": [Step("POST", f"{GROUP}/namespaces/nope/resourceclaims", a_claim())],
    "a claim in another namespace": [
        Step("POST", CLAIMS, {**a_claim(), "metadata": {"name": "c", "namespace": "other"}})
    ],
    "claims of all namespaces": [_ONE_CLAIM, Step("GET", f"{GROUP}/resourceclaims")],
    "a template": [
        Step("POST", TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": a_claim()["spec"]}})
    ],
}


def _class(**spec: Any) -> Case:
    return [Step("POST", CLASSES, {"metadata": {"name": "g"}, "spec": spec})]


CLASS_CASES: Mapping[str, Case] = {
    "a class": _class(),
    "a class with a selector": _class(
        selectors=[{"cel": {"expression": 'device.driver == "g.example.com"'}}]
    ),
    "a class with an empty selector": _class(selectors=[{}]),
    "a class with a configuration": _class(
        config=[{"opaque": {"driver": "g.example.com", "parameters": {"a": 1}}}]
    ),
    **{
        f"a class for {name}": _class(extendedResourceName=name)
        for name in (
            *("example.com/gopher", "gopher", "Example.com/gopher", "kubernetes.io/gopher"),
            *("requests.example.com/gopher", "a/b c", "a.kubernetes.io/b"),
        )
    },
}


def _pod(resources: Object, **spec: Any) -> Case:
    container = {"name": "main", "image": "none", "resources": resources}
    made = {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}
    return [Step("POST", PODS, made)]


POD_CASES: Mapping[str, Case] = {
    "a pod with an unknown claim": _pod({"claims": [{"name": "z"}]}),
    "a pod with a claim of two sources": _pod(
        {},
        resourceClaims=[{"name": "d", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}],
    ),
    "a pod with a claim of no source": _pod({}, resourceClaims=[{"name": "d"}]),
    "a pod with another request than limit": _pod(
        {"requests": {"example.com/gopher": "1"}, "limits": {"example.com/gopher": "2"}}
    ),
    "a pod with an unknown one of two claims": _pod(
        {"claims": [{"name": "z"}]},
        resourceClaims=[{"name": one, "resourceClaimName": one} for one in "ab"],
    ),
    "a pod with a bad amount": _pod({"limits": {"example.com/gopher": "x"}}),
    "a pod without containers": [
        Step("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}})
    ],
    "a pod with a request of devices only": _pod({"requests": {"example.com/gopher": "1"}}),
}
