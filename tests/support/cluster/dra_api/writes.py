"""Quantities, metadata, and requests that read and write slices."""

from collections.abc import Callable, Mapping
from typing import Any

from cluster.dra_api.asking import CLAIMS, GROUP, MERGE, PODS, SLICES, Case, Object, Step, edited
from cluster.dra_api.limits import a_slice, created, device

_HELD = {"key": "a", "value": "held", "effect": "NoSchedule"}


def _capacity(value: Any) -> Case:
    return device(capacity={"memory": {"value": value}})


def _metadata(**fields: Any) -> Case:
    return created(lambda made: made["metadata"].update(fields))


QUANTITIES: Mapping[str, Case] = {
    f"the quantity {text!r}": _capacity(text)
    for text in (
        *("1024Mi", "1000000", "0.5", "1000m", "1e3", "1E", "1.5Gi", "0.1Mi", "1Ki", "1025"),
        "2000",
        *("1500m", "0", "-5", "+5", "1.0", "100k", "1000k", "1u", "1n", "0.0000000001", "1e-3"),
        *("1E3", "12e6", "1.123456789123Gi", "9223372036854775808", "1000Ei", "1536Mi", ".5", "5."),
        *("01", "1e21", " 5", "5 ", "0.5Ki", "1.2k", "1024Ki", "0Ki", "1000u", "-1024Mi", "-0.5"),
        *("1000e3", "e3", "1ki", "1KI", "1..", "", "abc"),
    )
}  # fmt: skip
METADATA: Mapping[str, Case] = {
    "a name with a capital": _metadata(name="A_b"),
    "a name of 254 characters": _metadata(name="s" * 254),
    "no name": created(lambda made: made["metadata"].pop("name")),
    "a generated name": _metadata(name="", generateName="00000-gopher.example.com-n1-"),
    "a bad generated name": _metadata(name="s", generateName="A_"),
    "a version at creation": _metadata(resourceVersion="5"),
    "a namespace of what has none": _metadata(namespace="default"),
    "a bad label": _metadata(labels={"a b": "c"}),
    "a bad label's value": _metadata(labels={"a": "b c"}),
    "a bad annotation": _metadata(annotations={"a b": "c"}),
    "an empty owner": _metadata(ownerReferences=[{}]),
    "an owner": _metadata(
        ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}]
    ),
    "another kind": created(lambda made: made.update(kind="Pod")),
    "another version": created(lambda made: made.update(apiVersion="resource.k8s.io/v1beta1")),
    "no kind": created(lambda made: made.pop("kind")),
}


def _first(found: Object) -> Object:
    device: Object = found["spec"]["devices"][0]
    return device


def _put(change: Callable[[Object], Any] | None = None, **metadata: Any) -> Case:
    """Create a slice, and put another in its place: the answer with ``change``, or one anew."""
    body = edited(change) if change else a_slice(lambda made: made["metadata"].update(metadata))
    return [_ONE, Step("PUT", f"{SLICES}/s", body)]


_ONE = Step("POST", SLICES, a_slice())
WRITES: Mapping[str, Case] = {
    "a dry run": [
        Step("POST", f"{SLICES}?dryRun=All", a_slice()),
        Step("GET", f"{SLICES}/s"),
    ],
    "a dry run of something": [Step("POST", f"{SLICES}?dryRun=true", a_slice())],
    "the same slice twice": [_ONE, _ONE],
    "a taint by PUT": _put(lambda x: _first(x).update(taints=[_HELD])),
    "a PUT without a version": _put(),
    "a PUT with an old version": _put(resourceVersion="1"),
    "a PUT with a bad version": _put(resourceVersion="abc"),
    "a PUT with another UID": _put(uid="x-y"),
    "a PUT of what cannot change": [
        _ONE,
        Step("PUT", f"{SLICES}/s", a_slice(
            lambda x: x["spec"].update(
                driver="b", nodeName="n2", pool={**x["spec"]["pool"], "name": "n2/x"}
            )
        )),
    ],
    "a PUT to all nodes": _put(
        lambda x: (x["spec"].pop("nodeName"), x["spec"].update(allNodes=True))
    ),
    "a PUT of another name": _put(name="t"),
    "a PUT of what is not there": [Step("PUT", f"{SLICES}/s", a_slice())],
    "a merge patch": [
        _ONE,
        Step("PATCH", f"{SLICES}/s", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        Step("PATCH", f"{SLICES}/s", {"metadata": {"annotations": {"a": None}}}, MERGE),
    ],
    "a patch of no type": [_ONE, Step("PATCH", f"{SLICES}/s", {})],
    "a GET": [_ONE, Step("GET", f"{SLICES}/s")],
    "a GET of what is not there": [Step("GET", f"{SLICES}/s")],
    "a DELETE": [_ONE, Step("DELETE", f"{SLICES}/s"), Step("GET", f"{SLICES}/s")],
    "a DELETE with another UID": [
        _ONE,
        Step("DELETE", f"{SLICES}/s", {"preconditions": {"uid": "abc"}}),
    ],
    "a DELETE with another version": [
        _ONE,
        Step("DELETE", f"{SLICES}/s", {"preconditions": {"resourceVersion": "1"}}),
    ],
    "a body of another type": [Step("POST", SLICES, a_slice(), "text/plain")],
    "an unknown kind": [Step("GET", f"{GROUP}/foos")],
    "a POST to an object": [Step("POST", f"{SLICES}/s", a_slice())],
    "a list": [_ONE, Step("GET", SLICES)],
    "a list of a node and a driver": [
        _ONE,
        Step("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dn1,spec.driver%3Dgopher.example.com"),
        Step("GET", f"{SLICES}?fieldSelector=spec.nodeName!%3Dn1"),
    ],
    "a list by labels": [
        Step("POST", SLICES, a_slice(lambda x: x["metadata"].update(labels={"a": "b"}))),
        Step("GET", f"{SLICES}?labelSelector=a%3Db"),
        Step("GET", f"{SLICES}?labelSelector=a"),
        Step("GET", f"{SLICES}?labelSelector=a!%3Db"),
    ],
    "a list by an unknown field": [Step("GET", f"{SLICES}?fieldSelector=spec.pool.name%3Da")],
    "a list of pods by an unknown field": [Step("GET", f"{PODS}?fieldSelector=spec.foo%3Da")],
    "a list of claims by an unknown field": [Step("GET", f"{CLAIMS}?fieldSelector=spec.x%3Da")],
    "a bad field selector": [Step("GET", f"{SLICES}?fieldSelector=spec.nodeName")],
    "a bad label selector": [Step("GET", f"{SLICES}?labelSelector=a%20b")],
    "pages": [
        _ONE,
        Step("POST", SLICES, a_slice(lambda x: x["metadata"].update(name="t"))),
        Step("GET", f"{SLICES}?limit=1"),
    ],
    "a bad limit": [Step("GET", f"{SLICES}?limit=x")],
    "a watch with a bad version": [Step("GET", f"{SLICES}?watch=1&resourceVersion=abc")],
    "a watch with a bad timeout": [Step("GET", f"{SLICES}?watch=1&timeoutSeconds=abc")],
}  # fmt: skip
