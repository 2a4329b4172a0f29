import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from deviceplugin import (
    Device,
    DeviceNode,
    DiscoveryError,
    Health,
    Mount,
    Plugin,
    Topology,
    Version,
)
from deviceplugin._discovery import found as _found
from deviceplugin._discovery.found import counts, describe, discover, sort_out
from deviceplugin._inventory.validation import shown
from deviceplugin._platform.hooks import HookFailedError

SICK = Health.unhealthy("dust")


class Given(Plugin):
    resource = "x.io/dev"

    def __init__(self, found: Iterable[Device]) -> None:
        self._found = found

    @override
    def discover(self) -> Iterable[Device]:
        yield from self._found


class Incomparable:
    """As arrays are, which have no truth value."""

    def __eq__(self, other: object) -> bool:
        raise KeyError("no truth value")

    __hash__ = None  # type: ignore[assignment]


def test_what_a_plugin_finds_is_sorted_out_by_resource_and_the_first_of_an_id_is_taken() -> None:
    one, other, same = Device("a", health=SICK), *(Device(i, resource="x.io/other") for i in "ba")
    odd = [Device(""), Device("a")]
    nameless = [Device("c", resource="gpu"), Device("d", resource="gpu")]
    groups, problems = discover(Given([one, *odd, other, *nameless, *odd, same]))
    assert {"x.io/dev": {"a": one}, "x.io/other": {"b": other, "a": same}} == groups
    assert {
        "id '' must be a string that is not empty": 2,
        "device id 'a' is given more than once": 2,
        "resource name 'gpu' is not valid: it needs a domain, as in example.com/gpu": 2,
    } == problems
    assert [(0, 1), (2, 0), (0, 0)] == [*map(counts, groups.values()), counts({})]


def test_a_discovery_that_raises_on_the_way_has_failed() -> None:
    with pytest.raises(HookFailedError, match="ZeroDivisionError"):
        discover(Given(Device(str(1 // (2 - number))) for number in itertools.count()))


@pytest.mark.parametrize("found", [None, Device("a")])
def test_a_discovery_that_returns_no_list_says_what_it_should(
    monkeypatch: pytest.MonkeyPatch, found: object
) -> None:
    plugin = Given([])
    monkeypatch.setattr(plugin, "discover", lambda: found)
    with pytest.raises(HookFailedError) as info:
        discover(plugin)
    expected = "TypeError: discover() must return a list of devices, or yield them, not "
    assert f"{expected}{shown(found)}" == str(info.value)


class Unreadable:
    """As objects of native libraries are whose device has gone."""

    @override
    def __repr__(self) -> str:
        raise OSError("handle is closed")


class Moody(Device):
    """A device that looks for its topology when it is asked for it."""

    @override
    def __getattribute__(self, name: str) -> object:
        if name == "topology":
            raise OSError("no such bus")
        return super().__getattribute__(name)


NO_NUMBERS: Any = [0, None]


def fields(device_id: str = "x", **given: object) -> Callable[[], Device]:
    return lambda: Device(device_id, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (fields(envs=[1]), "envs is of type list, not a mapping"),
        (fields(envs="A=B"), "envs is of type str, not a mapping"),
        (fields(annotations=5), "annotations is of type int, not a mapping"),
        (fields(attributes=object), "attributes is of type type, not a mapping"),
        (fields(nodes=5), "node 5 is not a DeviceNode"),
        (fields(mounts=object()), "mount <object object> is not a Mount"),
        (fields(mounts=Unreadable()), "mount <Unreadable> is not a Mount"),
        (fields(cdi_names=7), "CDI name 7 is not a str"),
        (fields(health=Health(healthy="no")), "health's healthy 'no' is not a bool"),  # type: ignore[arg-type]
        (fields(topology=Topology(NO_NUMBERS)), "NUMA node None is not the number of a node"),
        (
            fields(topology=Topology([NO_NUMBERS])),
            "NUMA node [0, None] is not the number of a node",
        ),
        (
            lambda: Device("x", mounts=[Mount("/opt", read_only="yes")]),  # type: ignore[arg-type]
            "mount /opt: read_only 'yes' is not a bool",
        ),
        (lambda: Moody("x"), "OSError: no such bus"),
    ],
)
def test_a_bad_device_costs_no_other_also_where_they_are_yielded(
    make: Callable[[], Device], problem: str
) -> None:
    for _ in range(2):  # and the text is the same each time, so that it is logged once
        groups, problems = discover(Given(one() for one in (fields("a"), make, fields("b"))))
        assert ["a", "b"] == list(groups["x.io/dev"])
        assert {f"device x: {problem}": 1} == problems


def test_a_path_that_is_none_costs_no_other_device() -> None:
    paths: list[Any] = ["/dev/a\0b", None, "/dev/null"]
    groups, problems = discover(Given(Device.from_path(path) for path in paths))
    assert ["null"] == list(groups["x.io/dev"])
    assert [
        "id 'a\\x00b' has control characters, unreadable bytes or blanks at an end",
        "id None must be a string that is not empty",
    ] == list(problems)


def test_devices_without_a_resource_are_counted_and_told() -> None:
    groups, problems = sort_out([Device("a"), Device("b"), Device("c", resource="x.io/c")], "")
    assert ["x.io/c"] == list(groups)
    assert {"no resource is named, by the device or as resource of the plugin": 2} == problems
    assert ({}, {}) == sort_out([], "")
    assert ({"x.io/dev": {}}, {}) == sort_out([], "x.io/dev"), "it is there without devices"


def test_as_many_devices_as_can_be_are_taken_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_found, "MAX_DEVICES", 2)
    groups, _ = discover(Given([Device("a"), Device("b")]))
    assert ["a", "b"] == list(groups["x.io/dev"])
    with pytest.raises(DiscoveryError, match="more than 2 devices"):
        discover(Given([Device("a"), Device("b"), Device("c")]))


def test_a_device_is_described_in_json() -> None:
    device = Device(
        "a",
        health=SICK,
        topology=Topology((1, 0)),
        nodes=[DeviceNode("/dev/a", "/dev/b")],
        attributes={"model": "T1", "lanes": 4, "ecc": True, "driver": Version("1.2.3")},
        capacity={"memory": "8Gi"},
    )
    assert {
        "id": "a",
        "healthy": False,
        "reason": "dust",
        "since": "1970-01-01T00:00:01.500+00:00",
        "numa_nodes": [0, 1],
        "nodes": ["/dev/a"],
        "attributes": {"model": "T1", "lanes": 4, "ecc": True, "driver": "1.2.3"},
        "capacity": {"memory": "8Gi"},
    } == json.loads(json.dumps(describe(device, 1.5)))


def test_what_is_known_is_not_checked_again_and_what_changed_is() -> None:
    fine, odd = Device("a"), Device("a", resource="x.io/dev", nodes=[DeviceNode("relative")])
    known = {"x.io/dev": {"a": odd}}
    assert ({"x.io/dev": {"a": odd}}, {}) == sort_out([odd], "", known)
    assert ({"x.io/dev": {"a": fine}}, {}) == sort_out([fine], "x.io/dev", known)
    changed = replace(odd, health=Health.unhealthy("hot"))
    _, problems = sort_out([changed], "x.io/dev", known)
    assert ["device a: device node path 'relative' is not absolute"] == list(problems)


def test_what_is_equal_to_what_is_known_is_the_known_object() -> None:
    known = {"x.io/dev": {"a": Device("a"), "b": Device("b")}}
    changed = Device("b", health=SICK)
    groups, _ = discover(Given([Device("a"), changed]), known)
    assert known["x.io/dev"]["a"] is groups["x.io/dev"]["a"]
    assert changed is groups["x.io/dev"]["b"]


class Numbered(Device):
    """As authors write it who look for devices by id."""

    @override
    def __eq__(self, other: object) -> bool:
        return self.id == other.id  # type: ignore[attr-defined,no-any-return]

    __hash__ = None  # type: ignore[assignment]


def test_a_device_whose_class_calls_others_equal_is_taken_as_it_is_given() -> None:
    first, ill = Numbered("a"), Numbered("a", health=SICK)
    groups, _ = discover(Given([first]))
    assert first is groups["x.io/dev"]["a"]
    for given in (ill, Device("a", health=SICK), first):
        groups, _ = discover(Given([given]), groups)
        assert given is groups["x.io/dev"]["a"]


@pytest.mark.parametrize(
    "strange",
    [
        "text",
        Device([]),  # type: ignore[arg-type]
        Device("a", attributes={"model": Incomparable()}),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_compared_with_what_is_known_is_checked(strange: Device) -> None:
    known = {"x.io/dev": {"a": Device("a", attributes={"model": "T"})}}
    groups, problems = sort_out([strange], "x.io/dev", known)
    assert ({"x.io/dev": {}}, 1) == (groups, problems.total())
