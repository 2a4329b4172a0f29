"""The limits of slices: names, numbers, values, types."""

from collections.abc import Callable, Mapping
from typing import Any

from cluster.dra_api.asking import SLICES, Case, Object, Step


def a_slice(change: Callable[[Object], Any] = lambda _: None) -> Object:
    """Return a slice of two devices that ``change`` was applied to."""
    made: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gopher.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1/example.com/gopher", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gary"}, {"name": "gina"}],
        },
    }
    change(made)
    return made


def created(change: Callable[[Object], Any]) -> Case:
    return [Step("POST", SLICES, a_slice(change))]


def device(**fields: Any) -> Case:
    return created(lambda made: made["spec"]["devices"][1].update(fields))


def _devices(count: int, **fields: Any) -> Case:
    devices = [{"name": f"d{index}", **fields} for index in range(count)]
    return created(lambda made: made["spec"].update(devices=devices))


def _spec(**fields: Any) -> Case:
    def change(made: Object) -> None:
        made["spec"].update(fields)
        for name, value in fields.items():
            if value is None:
                del made["spec"][name]

    return created(change)


def _pool(**fields: Any) -> Case:
    return created(lambda made: made["spec"]["pool"].update(fields))


def _attribute(name: str, value: Any) -> Case:
    return device(attributes={name: value})


def _taint(**fields: Any) -> Case:
    return device(taints=[{"key": "example.com/x", "effect": "NoSchedule", **fields}])


def _numbered(count: int) -> Object:
    return {f"a{index}": {"int": index} for index in range(count)}


def _shared(value: str, **policy: Any) -> Case:
    capacity = {"value": value, "requestPolicy": policy}
    return device(allowMultipleAllocations=True, capacity={"x": capacity})


_ONE = {"counters": {"x": {"value": "1"}}}


def _counter_set(name: str = "a", *counters: str) -> Object:
    return {"name": name, "counters": {one: {"value": "1"} for one in counters or "x"}}


def _sets(*sets: Any, **more: Any) -> Case:
    return _spec(devices=None, sharedCounters=[*sets], **more)


def _consumes(*names: str, **fields: Any) -> Case:
    several = [{"counterSet": name, "counters": {"x": {"value": "2"}}} for name in names]
    several[-1] |= fields
    return device(consumesCounters=several)


def _named(count: int) -> list[str]:
    return [f"c{index}" for index in range(count)]


LIMITS: Mapping[str, Case] = {
    "a plain slice": created(lambda _: None),
    "a device with a capital": device(name="Gina"),
    "a device with a dot": device(name="g.i"),
    "a device of 64 characters": device(name="a" * 64),
    "a device of 63 characters": device(name="a" * 63),
    "a device without a name": created(lambda made: made["spec"]["devices"][1].pop("name")),
    "a device that is null": _spec(devices=[None]),
    "a duplicate device": device(name="gary"),
    "a bad and a duplicate device": _spec(devices=[{"name": one} for one in ("a", "b", "a", "A")]),
    "128 devices": _devices(128),
    "129 devices": _devices(129),
    "64 devices with taints": _devices(64, taints=[{"key": "a", "effect": "NoSchedule"}]),
    "65 devices with taints": _devices(65, taints=[{"key": "a", "effect": "NoSchedule"}]),
    "an attribute with a dash": _attribute("a-b", {"string": "x"}),
    "an attribute of 33 characters": _attribute("a" * 33, {"string": "x"}),
    "an attribute with a digit first": _attribute("1a", {"string": "x"}),
    "an attribute without a name": _attribute("", {"string": "x"}),
    "an attribute with an empty domain": _attribute("/a", {"string": "x"}),
    "an attribute with a domain only": _attribute("a.b/", {"string": "x"}),
    "an attribute's domain with a capital": _attribute("A.b/x", {"string": "x"}),
    "an attribute's domain of 64 characters": _attribute("a" * 64 + "/x", {"string": "x"}),
    "an attribute's domain with an underscore": _attribute("a_b/x", {"string": "x"}),
    "an attribute with two slashes": _attribute("a/b/c", {"string": "x"}),
    "a long name, domain and value": _attribute("a" * 64 + "/" + "b" * 33, {"string": "x" * 65}),
    "a string of 33 characters of two bytes": _attribute("a", {"string": "é" * 33}),
    "a string of 32 characters of two bytes": _attribute("a", {"string": "é" * 32}),
    "an empty string": _attribute("a", {"string": ""}),
    "a string of two lines": _attribute("a", {"string": "a\nb"}),
    "a version with a leading zero": _attribute("a", {"version": "595.58.03"}),
    "a version": _attribute("a", {"version": "1.2.3-a.1+b"}),
    "an attribute without a value": _attribute("a", {}),
    "an attribute that is null": _attribute("a", None),
    "an attribute with two values": _attribute("a", {"string": "x", "int": 1}),
    "an attribute with an unknown field": _attribute("a", {"fooBar": 1}),
    "an attribute that is a list": _attribute("a", {"strings": ["a"]}),
    "an attribute that is a list and a number": _attribute("a", {"strings": ["a"], "int": 1}),
    "an attribute that is an empty list": _attribute("a", {"strings": []}),
    "a number that is a string": _attribute("a", {"int": "x"}),
    "a number of 65 bits": _attribute("a", {"int": 2**63}),
    "a number with a fraction": _attribute("a", {"int": 1.5}),
    "an attribute that is a number": _attribute("a", 3),
    "49 attributes": device(attributes=_numbered(49)),
    "30 attributes and 2 capacities": device(
        attributes=_numbered(30), capacity={name: {"value": "1"} for name in "xy"}
    ),
    "30 attributes and 3 capacities": device(
        attributes=_numbered(30), capacity={name: {"value": "1"} for name in "xyz"}
    ),
    "a capacity without a value": device(capacity={"x": {}}),
    "a capacity with a policy": device(
        capacity={"x": {"value": "5", "requestPolicy": {"default": "1"}}}
    ),
    "a shared capacity with two policies": device(
        allowMultipleAllocations=True,
        capacity={
            "x": {
                "value": "5",
                "requestPolicy": {
                    "default": "1",
                    "validValues": ["1"],
                    "validRange": {"min": "1"},
                },
            }
        },
    ),
    "a shared capacity without a policy": device(
        allowMultipleAllocations=True, capacity={"x": {"value": "5"}}
    ),
    "a shared capacity with a default": _shared("1024Mi", default="0"),
    "a shared capacity with an empty policy": _shared("5"),
    "a default above the capacity": _shared("5", default="6"),
    "a range": _shared("4", default="1", validRange={"min": "1", "step": "1"}),
    "a range of one": _shared("1", default="1", validRange={"min": "1", "max": "1"}),
    "a step beyond the capacity": _shared(
        "1", default="1", validRange={"min": "1", "step": "1"}
    ),
    "a range without a default": _shared("4", validRange={"min": "1"}),
    "a range without a minimum": _shared("4", default="1", validRange={"max": "2"}),
    "a default beyond the range": _shared("4", default="0", validRange={"min": "1"}),
    "a range beyond everything": _shared(
        "4", default="7", validRange={"min": "6", "max": "5", "step": "2"}
    ),
    "a default between steps": _shared(
        "9", default="2", validRange={"min": "1", "max": "4", "step": "2"}
    ),
    "values": _shared("8Gi", default="2Gi", validValues=["1Gi", "2048Mi"]),
    "values without a default": _shared("8", validValues=["1"]),
    "values without the default": _shared("8", default="3", validValues=["1", "2"]),
    "values in disorder, twice and too large": _shared(
        "8", default="2", validValues=["2", "1", "2", "9"]
    ),
    "11 values": _shared("20", default="1", validValues=[str(i) for i in range(1, 12)]),
    "a taint": _taint(value="held"),
    "a taint with a bad time": _taint(timeAdded="x"),
    "a taint's value with spaces": _taint(value="ECC error: 3"),
    "a taint's value of 64 bytes": _taint(value="a" * 64),
    "a taint without a key": device(taints=[{"effect": "NoSchedule"}]),
    "a taint's key with a space": _taint(key="a b"),
    "a taint's key with two slashes": _taint(key="a/b/c"),
    "a taint's key with a bad domain": _taint(key="A_/b"),
    "a taint's key with an empty domain": _taint(key="/b"),
    "a taint's key without a name": _taint(key="a/"),
    "a taint's key of 64 dashes": _taint(key="a.b/" + "-" * 64),
    "a taint without an effect": device(taints=[{"key": "a"}]),
    "a taint with an unknown effect": _taint(effect="Foo"),
    "17 taints": device(taints=[{"key": f"a{index}", "effect": "None"} for index in range(17)]),
    "a taint twice": device(taints=[{"key": "a", "effect": "None"}] * 2),
    "conditions without failures": device(bindingConditions=["a"]),
    "a device of a node": device(nodeName="n1"),
    "a pool with an underscore": _pool(name="n_1/x"),
    "a pool without a name": _pool(name=""),
    "a pool of 254 characters": _pool(name="a" * 254),
    "a pool of no slices": _pool(resourceSliceCount=0),
    "a pool of generation -1": _pool(generation=-1),
    "a slice without a pool": _spec(pool=None),
    "a driver with a capital": _spec(driver="Gopher.example.com"),
    "a driver of 64 characters": _spec(driver="a" * 64),
    "a driver without a name": _spec(driver=""),
    "a slice of no node": _spec(nodeName=None),
    "a slice of an empty node": _spec(nodeName=""),
    "a slice of a bad node": _spec(nodeName="N_1"),
    "a slice of a node and all nodes": _spec(allNodes=True),
    "a slice of a node and not all nodes": _spec(allNodes=False),
    "a slice of all nodes": _spec(nodeName=None, allNodes=True),
    "a slice without devices": _spec(devices=None),
    "a slice with an empty list of devices": _spec(devices=[]),
    "devices and counters": _spec(
        sharedCounters=[{"name": "a", "counters": {"x": {"value": "1"}}}]
    ),
    "no devices and a list of no counters": _sets(),
    "devices and a list of no counters": _spec(sharedCounters=[]),
    "8 sets of counters": _sets(*map(_counter_set, _named(8))),
    "9 sets of counters": _sets(*map(_counter_set, _named(9))),
    "65 devices that consume, and 9 sets": _spec(
        devices=[{"name": one, "consumesCounters": [{"counterSet": "a", **_ONE}]}
                 for one in _named(65)],
        sharedCounters=[*map(_counter_set, _named(9))],
    ),
    "a set twice, and a bad one": _sets(
        _counter_set("a"), _counter_set("A_"), _counter_set("a"), _counter_set("a" * 64)
    ),
    "a set without a name and counters": _sets({}, {"name": "b", "counters": {}}),
    "a set of an empty name": _sets(_counter_set("")),
    "a set that is null": _sets(None),
    "a set that is a string": _sets("x"),
    "counters that are a list": _sets({"name": "a", "counters": []}),
    "a counter that is a number": _sets({"name": "a", "counters": {"x": 1}}),
    "a counter without a value": _sets({"name": "a", "counters": {"x": {}}}),
    "a counter of a bad amount": _sets({"name": "a", "counters": {"x": {"value": "1x"}}}),
    "counters of odd amounts": _sets(
        {"name": "a", "counters": {"x": {"value": "-1"}, "y": {"value": "1024Mi"}}}
    ),
    "32 counters": _sets(_counter_set("a", *_named(32))),
    "33 counters, one with a bad name": _sets(_counter_set("a", *_named(32), "B")),
    "a counter with a dot": _sets(_counter_set("a", "b.c")),
    "a counter of 64 characters": _sets(_counter_set("a", "b" * 64)),
    "a device that consumes of 2 sets": _consumes("a", "b"),
    "a device that consumes of 3 sets": _consumes("a", "b", "c"),
    "a device that consumes of a set twice": _consumes("a", "a"),
    "a device that consumes of no set": _consumes(""),
    "a device that consumes no counter": _consumes("a", counters={}),
    "a device that consumes of bad names": _consumes("A", counters={"_": {"value": "1"}}),
    "a device that consumes 33 counters": _consumes(
        "a", counters={one: {"value": "1"} for one in _named(33)}
    ),
    "a device that consumes nothing": device(consumesCounters=[]),
    "64 devices that consume": _devices(64, consumesCounters=[{"counterSet": "a", **_ONE}]),
    "groups of compatible devices, before 1.37": _consumes("a", compatibilityGroups=["x"]),
    "an unknown field": _spec(fooBar=1),
    "devices that are a string": _spec(devices="x"),
    "devices that are an object": _spec(devices={"a": 1}),
    "attributes that are a list": device(attributes=[]),
    "no specification": created(lambda made: made.pop("spec")),
    "a specification that is null": created(lambda made: made.update(spec=None)),
}  # fmt: skip

LISTS: Mapping[str, Case] = {
    "lists of each type": device(
        attributes={
            "a": {"ints": [1, 1, -2]},
            "b": {"bools": [True, False]},
            "c": {"strings": ["a", ""]},
            "d": {"versions": ["1.2.3"]},
        }
    ),
    "an empty list": _attribute("a", {"strings": []}),
    "a list and a value": _attribute("a", {"ints": [1], "int": 1}),
    "two lists": _attribute("a", {"ints": [1], "strings": ["a"]}),
    "an empty list and a value": _attribute("a", {"ints": [], "int": 1}),
    "a list of long strings": _attribute("a", {"strings": ["a", "b" * 65, "é" * 33]}),
    "a list of versions that are none": _attribute("a", {"versions": ["1.2.3", "1.2", "x" * 65]}),
    "a list of other values": _attribute("a", {"ints": ["a"]}),
    "a list that is a string": _attribute("a", {"strings": "a"}),
    "48 values in lists": device(attributes={"a": {"ints": [*range(47)]}, "b": {"int": 1}}),
    "49 values in lists": device(attributes={"a": {"ints": [*range(48)]}, "b": {"int": 1}}),
    "64 devices with lists": _devices(64, attributes={"a": {"ints": [1]}}),
    "65 devices with lists": _devices(65, attributes={"a": {"ints": [1]}}),
}
"""Asked where the feature gate DRAListTypeAttributes is on."""
DROPPED: Mapping[str, Case] = {
    "counters without the feature": _sets(_counter_set()),
    "bad counters without the feature": _sets(_counter_set("A")),
    "a device that consumes, without the feature": _consumes("a"),
    "a device of a node, without the feature": device(nodeName="n1", allNodes=True),
    "a slice of each device's node, without the feature": _spec(
        nodeName=None, perDeviceNodeSelection=True
    ),
}
"""Asked where DRAPartitionableDevices is off."""
