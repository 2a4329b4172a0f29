import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from typing_extensions import override

from deviceplugin import Device, DeviceNode, DiscoveryError, Health, Plugin, Topology, main
from deviceplugin._app.preview import show
from deviceplugin._dra.slices.attributes import device_classes

GPU = Device(
    "gpu10",
    health=Health.unhealthy("too hot"),
    topology=Topology((0, 1)),
    nodes=[DeviceNode("/dev/gpu10"), DeviceNode("/dev/gpuctl")],
    attributes={"model": "T1", "ecc": True},
    capacity={"memory": "8G"},
)


class Serial(Plugin):
    resource = "x.io/serial"

    def __init__(self, *devices: Device, resource: str = "x.io/serial") -> None:
        self._devices = devices
        self.resource = resource

    @override
    def discover(self) -> Iterable[Device]:
        return self._devices


class Broken(Plugin):
    def __init__(self, error: Exception) -> None:
        self._error = error

    @override
    def discover(self) -> Iterable[Device]:
        yield Device("a")
        raise self._error


NO_DOMAIN = "it needs a domain, as in example.com/gpu"
RAISED_AT = Broken.discover.__code__.co_firstlineno + 3


def test_a_table_shows_what_would_be_advertised(capsys: pytest.CaptureFixture[str]) -> None:
    other = Device("o", resource="x.io/other")
    assert 0 == show([Serial(GPU, Device("gpu2", topology=Topology((0,))), other)], "table")
    expected = (
        "RESOURCE     DEVICE  HEALTH              NUMA  DEVICE NODES            ATTRIBUTES\n"
        "x.io/other   o       healthy             -     -                       -\n"
        "x.io/serial  gpu2    healthy             0     -                       -\n"
        "x.io/serial  gpu10   unhealthy: too hot  0,1   /dev/gpu10,/dev/gpuctl  "
        "model=T1,ecc=true,memory=8G\n"
    )
    assert (expected, "") == capsys.readouterr()


def test_many_devices_that_differ_in_nothing_else_are_one_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = [Device(f"a::{share}") for share in range(10)]
    many = [Device(f"b::{share}", resource="x.io/other") for share in range(1000)]
    show([Serial(*few, *many, Device("c", health=Health.unhealthy("gone")))], "table")
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]
    shown = [(row[0].strip(), next(filter(None, row[1:])).strip()) for row in rows]
    serial = [("x.io/serial", one.id) for one in few]
    other = ("x.io/other", "b::0 to b::999 (1000)")
    assert [other, *serial, ("x.io/serial", "c")] == shown


def test_a_table_is_no_command_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show([Serial(Device("a", attributes={"interface": "é\x1b[2J\nb"}))], "table")
    assert r" interface=é\x1b[2J\nb" in capsys.readouterr().out


def test_a_table_shows_the_first_of_many_facts(capsys: pytest.CaptureFixture[str]) -> None:
    device = Device("a", attributes={f"a{i}": i for i in range(8)}, capacity={"b": 1, "c": 2})
    assert 0 == show([Serial(device)], "table")
    assert capsys.readouterr().out.endswith(" a0=0,a1=1,a2=2,a3=3,a4=4,a5=5,a6=6,a7=7,(2 more)\n")


def test_a_reason_that_cannot_be_written_is_shown_as_well_as_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = Device("a", health=Health.unhealthy("/dev/\udcff: no such file"))
    assert 0 == show([Serial(lost), Serial(resource="x.io/other")], "table")
    out, err = capsys.readouterr()
    assert r"unhealthy: /dev/\udcff: no such file" in out
    assert "" == err  # a device that is not well is one


def test_json_shows_what_would_be_advertised(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == show([Serial(GPU, Device("gpu2", topology=Topology((0,))))], "json")
    out, err = capsys.readouterr()
    (resource,) = json.loads(out)["resources"]
    _, device = resource["devices"]
    assert ("x.io/serial", ["gpu2", "gpu10"], "") == (
        resource["name"],
        [one["id"] for one in resource["devices"]],
        err,
    )
    assert {
        "id": "gpu10",
        "healthy": False,
        "reason": "too hot",
        "numa_nodes": [0, 1],
        "nodes": ["/dev/gpu10", "/dev/gpuctl"],
        "attributes": {"model": "T1", "ecc": True},
        "capacity": {"memory": "8G"},
    } == device


@pytest.mark.parametrize(
    ("plugin", "row", "resources"),
    [
        (Serial(), "x.io/serial  (none now)  -", [{"name": "x.io/serial", "devices": []}]),
        (Broken(OSError("odd")), "nothing to advertise\n", []),
    ],
)
def test_a_resource_without_devices_is_shown_and_nothing_at_all_is_said_to_be_nothing(
    capsys: pytest.CaptureFixture[str], plugin: Plugin, row: str, resources: list[object]
) -> None:
    assert 1 == show([plugin], "table")
    assert row in capsys.readouterr().out
    assert 1 == show([plugin], "json")
    assert {"resources": resources} == json.loads(capsys.readouterr().out)


def test_what_cannot_be_advertised_is_told_beside_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = Serial(Device(" a"), Device("b"), Device("c", resource="c"))
    assert 0 == show([odd, Serial(Device("second"))], "json")
    out, err = capsys.readouterr()
    (resource,) = json.loads(out)["resources"]
    assert ["b"] == [device["id"] for device in resource["devices"]]
    assert [
        "Serial: skipped: id ' a' has control characters, unreadable bytes or blanks at an end",
        f"Serial: skipped: resource name 'c' is not valid: {NO_DOMAIN}",
        "Serial: skipped: resource belongs to another plugin: x.io/serial",
    ] == err.splitlines()


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("plugins", "lines"),
    [
        ([Serial(), Serial(resource="")], []),
        ([Serial(Device(""))], ["Serial: skipped: id '' must be a string that is not empty"]),
    ],
)
def test_nothing_that_could_be_given_to_a_pod_is_no_success(
    capsys: pytest.CaptureFixture[str], plugins: list[Plugin], lines: list[str], output: str
) -> None:
    assert 1 == show(plugins, output)
    assert [*lines, "no device would be advertised"] == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DiscoveryError("no driver"), "no driver"),
        (OSError("odd"), f"OSError: odd (tests/common/test_preview.py:{RAISED_AT})"),
    ],
)
def test_a_discovery_that_fails_is_told_and_the_others_are_shown(
    capsys: pytest.CaptureFixture[str], error: Exception, text: str
) -> None:
    assert 1 == show([Broken(error), Serial(Device("b"))], "table")
    out, err = capsys.readouterr()
    assert "x.io/serial  b" in out
    assert f"Broken: discovery failed: {text}\n" == err


class Named(Serial):
    """As a command makes it: without arguments."""

    def __init__(self) -> None:
        fine = Device("a", attributes={"lanes": 4})
        super().__init__(fine, Device("B", health=Health.unhealthy("hot")), Device("c" * 60 + "ä"))


def once(
    capsys: pytest.CaptureFixture[str], kind: type[Plugin], *words: str, ending: int = 0
) -> str:
    """Return what a command writes that has ``words``."""
    with pytest.raises(SystemExit) as end:
        main(kind, kind, argv=["--once", *words])
    assert ending == end.value.code
    out, err = capsys.readouterr()
    return err if ending else out


@pytest.mark.parametrize("words", [["--output=slices"], ["--protocol=dra"]])
def test_slices_are_shown_as_they_would_be_published(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    written = once(capsys, Named, "--node-name=n1", "--driver-name=s.x.io", *words)
    one = yaml.safe_load(written)
    spec = one["spec"]
    assert ("ResourceSlice", "s.x.io", "n1") == (one["kind"], spec["driver"], spec["nodeName"])
    assert {"name": "n1/x.io/serial", "generation": 1, "resourceSliceCount": 1} == spec["pool"]
    by_id = {device["attributes"]["id"]["string"]: device for device in spec["devices"]}
    assert {"int": 4} == by_id["a"]["attributes"]["lanes"]
    assert [{"key": "s.x.io/unhealthy", "effect": "NoSchedule"}] == by_id["B"]["taints"]


@dataclass(frozen=True)
class Line:
    baud_rate: int = 9600


class Talking(Named):
    parameters = Line

    @override
    def allocate_with(self, devices: Any, parameters: Any) -> Any:
        raise NotImplementedError


def test_comments_show_what_a_claim_may_say(capsys: pytest.CaptureFixture[str]) -> None:
    written = once(capsys, Talking, "--output=slices", "--driver-name=s.x.io")
    assert 1 == len(list(yaml.safe_load_all(written)))
    comments = [line.removeprefix("# ") for line in written.splitlines() if line[0] == "#"]
    assert "A claim may have this as spec.devices.config:" == comments[0]
    parameters = {"apiVersion": "s.x.io/v1", "kind": "Line", "baudRate": 9600}
    assert [{"opaque": {"driver": "s.x.io", "parameters": parameters}}] == json.loads(
        "".join(comments[1:])
    )


def test_classes_are_shown_for_the_resources(capsys: pytest.CaptureFixture[str]) -> None:
    one = yaml.safe_load(once(capsys, Named, "--output=device-classes", "--driver-name=s.x.io"))
    assert ("DeviceClass", "s.x.io") == (one["kind"], one["metadata"]["name"])
    assert "x.io/serial" == one["spec"]["extendedResourceName"]


def test_classes_of_several_resources_have_names_of_their_own() -> None:
    found = device_classes("s.x.io", ["x.io/b_B", "y.io/a", "x.io/c", "y.io/c"])
    names = sorted((one["metadata"]["name"], one["spec"]["extendedResourceName"]) for one in found)
    assert ["y.io/a", "x.io/b_B", "x.io/c", "y.io/c"] == [resource for _, resource in names]
    labels = ["a", "b-b-52dd6120", "x-io-c-f639d765", "y-io-c-3e35b946"]
    assert [f"{one}.s.x.io" for one in labels] == [name for name, _ in names]


def test_with_dra_the_table_can_be_asked_for_and_slices_need_the_name_of_a_driver(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "RESOURCE" in once(capsys, Named, "--protocol=dra", "--output=table")
    assert "driver-name is needed" in once(capsys, Named, "--output=slices", ending=2)
