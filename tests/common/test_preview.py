import json
from collections.abc import Iterable

import pytest
from typing_extensions import override

from deviceplugin import Device, DeviceNode, DiscoveryError, Health, Plugin, Topology
from deviceplugin._app.preview import show

GPU = Device(
    "gpu10",
    health=Health.unhealthy("too hot"),
    topology=Topology((0, 1)),
    nodes=[DeviceNode("/dev/gpu10"), DeviceNode("/dev/gpuctl")],
    attributes={"model": "T1", "memory": "8G"},
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
        "model=T1,memory=8G\n"
    )
    assert (expected, "") == capsys.readouterr()


def test_a_reason_that_cannot_be_written_is_shown_as_well_as_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = Device("a", health=Health.unhealthy("/dev/\udcff: no such file"))
    assert 0 == show([Serial(lost)], "table")
    assert r"unhealthy: /dev/\udcff: no such file" in capsys.readouterr().out


def test_json_shows_what_would_be_advertised(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == show([Serial(GPU, Device("gpu2", topology=Topology((0,))))], "json")
    out, err = capsys.readouterr()
    gpu2 = {
        "id": "gpu2",
        "healthy": True,
        "reason": "",
        "numa_nodes": [0],
        "nodes": [],
        "attributes": {},
    }
    gpu10 = {
        "id": "gpu10",
        "healthy": False,
        "reason": "too hot",
        "numa_nodes": [0, 1],
        "nodes": ["/dev/gpu10", "/dev/gpuctl"],
        "attributes": {"model": "T1", "memory": "8G"},
    }
    assert {"resources": [{"name": "x.io/serial", "devices": [gpu2, gpu10]}]} == json.loads(out)
    assert "" == err


def test_a_resource_without_devices_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == show([Serial()], "table")
    assert "x.io/serial  (none now)  -" in capsys.readouterr().out
    assert 1 == show([Serial()], "json")
    expected = {"resources": [{"name": "x.io/serial", "devices": []}]}
    assert expected == json.loads(capsys.readouterr().out)


def test_what_cannot_be_advertised_is_told_beside_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 0 == show([Serial(Device(" a"), Device("b"), Device("c", resource="c"))], "table")
    out, err = capsys.readouterr()
    assert "x.io/serial  b" in out
    assert [
        "Serial: skipped: id ' a' has control characters, unreadable bytes or blanks at an end",
        "Serial: skipped: resource name 'c' is not valid: it needs a domain, as in example.com/gpu",
    ] == err.splitlines()


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("plugins", "lines"),
    [
        ([Serial()], []),
        ([Serial(), Serial(resource="")], []),
        (
            [Serial(Device(""))],
            ["Serial: skipped: id '' must be a string that is not empty"],
        ),
        (
            [Serial(Device("a", resource="gpu"))],
            [f"Serial: skipped: resource name 'gpu' is not valid: {NO_DOMAIN}"],
        ),
    ],
)
def test_nothing_that_could_be_given_to_a_pod_is_no_success(
    capsys: pytest.CaptureFixture[str], plugins: list[Plugin], lines: list[str], output: str
) -> None:
    assert 1 == show(plugins, output)
    assert [*lines, "no device would be advertised"] == capsys.readouterr().err.splitlines()


def test_a_device_that_is_not_well_is_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == show([Serial(GPU, Device("")), Serial(resource="x.io/other")], "table")
    assert "no device" not in capsys.readouterr().err


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


def test_the_first_of_two_plugins_has_a_resource(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == show([Serial(Device("a")), Serial(Device("b"))], "json")
    out, err = capsys.readouterr()
    (resource,) = json.loads(out)["resources"]
    assert ["a"] == [device["id"] for device in resource["devices"]]
    assert "Serial: skipped: resource belongs to another plugin: x.io/serial\n" == err


def test_nothing_at_all_is_said_to_be_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == show([Broken(OSError("odd"))], "table")
    assert "nothing to advertise\n" == capsys.readouterr().out
    assert 1 == show([Broken(OSError("odd"))], "json")
    assert {"resources": []} == json.loads(capsys.readouterr().out)
