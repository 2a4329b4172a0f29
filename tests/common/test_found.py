import itertools
import json
from collections.abc import Callable, Iterable, Iterator
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


def test_what_a_plugin_finds_is_sorted_out() -> None:
    plain, other = Device("a"), Device("b", resource="x.io/other")
    groups, problems = discover(Given([plain, Device(""), other, Device("")]))
    assert {"x.io/dev": {"a": plain}, "x.io/other": {"b": other}} == groups
    assert {"id '' must be a string that is not empty": 2} == problems


def test_a_discovery_that_raises_on_the_way_has_failed() -> None:
    with pytest.raises(HookFailedError, match="ZeroDivisionError"):
        discover(Given(Device(str(1 // (2 - number))) for number in itertools.count()))


@pytest.mark.parametrize("found", [None, Device("a")])
def test_a_discovery_that_returns_no_list_says_what_it_should(found: object) -> None:
    class Forgetful(Plugin):
        @override
        def discover(self) -> Iterable[Device]:
            return found  # type: ignore[return-value]

    with pytest.raises(HookFailedError) as info:
        discover(Forgetful())
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


def fields(**given: object) -> Callable[[], Device]:
    return lambda: Device("x", **given)  # type: ignore[arg-type]


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
    class Bus(Plugin):
        resource = "x.io/dev"

        @override
        def discover(self) -> Iterator[Device]:
            yield Device("a")
            yield make()
            yield Device("b")

    for _ in range(2):  # and the text is the same each time, so that it is logged once
        groups, problems = discover(Bus())
        assert ["a", "b"] == list(groups["x.io/dev"])
        assert {f"device x: {problem}": 1} == problems


def test_a_path_that_is_none_costs_no_other_device() -> None:
    class Bus(Plugin):
        resource = "x.io/dev"

        @override
        def discover(self) -> Iterator[Device]:
            for path in ("/dev/a\0b", None, "/dev/null"):
                yield Device.from_path(path)  # type: ignore[arg-type]

    groups, problems = discover(Bus())
    assert ["null"] == list(groups["x.io/dev"])
    assert [
        "id 'a\\x00b' has control characters, unreadable bytes or blanks at an end",
        "id None must be a string that is not empty",
    ] == list(problems)


def test_devices_without_a_resource_are_counted_and_told() -> None:
    groups, problems = sort_out([Device("a"), Device("b"), Device("c", resource="x.io/c")], "")
    assert ["x.io/c"] == list(groups)
    assert {"no resource is named, by the device or as resource of the plugin": 2} == problems


def test_as_many_devices_as_can_be_are_taken_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_found, "MAX_DEVICES", 2)
    groups, _ = discover(Given([Device("a"), Device("b")]))
    assert ["a", "b"] == list(groups["x.io/dev"])
    with pytest.raises(DiscoveryError, match="more than 2 devices"):
        discover(Given([Device("a"), Device("b"), Device("c")]))


def test_the_default_resource_is_there_without_devices() -> None:
    assert ({"x.io/dev": {}}, {}) == sort_out([], "x.io/dev")
    assert ({}, {}) == sort_out([], "")


def test_the_same_id_may_be_used_in_two_resources() -> None:
    groups, problems = sort_out([Device("a"), Device("a", resource="x.io/other")], "x.io/dev")
    assert ["x.io/dev", "x.io/other"] == list(groups)
    assert {} == problems


def test_the_first_of_two_devices_with_one_id_is_taken() -> None:
    sick = Device("a", health=SICK)
    groups, problems = sort_out([sick, Device("a"), Device("a")], "x.io/dev")
    assert {"a": sick} == groups["x.io/dev"]
    assert {"device id 'a' is given more than once": 2} == problems


def test_a_bad_resource_name_is_told_once_and_its_devices_are_left_out() -> None:
    odd = [Device("a", resource="gpu"), Device("b", resource="gpu"), Device("c")]
    groups, problems = sort_out(odd, "x.io/dev")
    assert ["x.io/dev"] == list(groups)
    name_problem = "resource name 'gpu' is not valid: it needs a domain, as in example.com/gpu"
    assert {name_problem: 2} == problems


def test_healthy_and_unhealthy_devices_are_counted() -> None:
    devices = {"a": Device("a"), "b": Device("b"), "c": Device("c", health=SICK)}
    assert (2, 1) == counts(devices)
    assert (0, 0) == counts({})


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
