"""Telling of devices whose health has changed."""

import logging

import pytest

import deviceplugin as dp
from deviceplugin._discovery.health_changes import HealthChanges
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.events import Events
from scripted_plugin import RESOURCE, ScriptedPlugin, sick


class Told:
    """A resource, and what is told of it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.events = Events()
        self.changes = HealthChanges(self.events)
        self.resource = Resource(RESOURCE, ScriptedPlugin())

    def of(self, *devices: dp.Device) -> list[tuple[str, str]]:
        """Publish ``devices`` and return what is told of them: the event and the reason."""
        self._caplog.clear()
        self.changes.report(self.resource, self.resource.publish(devices))
        return [(r.getMessage(), vars(r).get("reason", "")) for r in self._caplog.records]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_a_change_of_health_is_told_each_time(told: Told) -> None:
    for _ in range(3):
        assert [("device is healthy", "")] == told.of(dp.Device("a"))
        assert [] == told.of(dp.Device("a"))
        assert [("device is unhealthy", "too hot")] == told.of(sick("a", "too hot"))
    assert 6 == len(told.events.latest())


def worn(reason: str) -> dp.Device:
    return dp.Device("a", health=dp.Health.degraded(reason))


def test_a_device_that_will_fail_is_told_and_then_that_it_did(told: Told) -> None:
    assert [("device is healthy", "")] == told.of(dp.Device("a"))
    assert [("device is degraded", "worn out")] == told.of(worn("worn out"))
    assert [] == told.of(worn("worn out"))
    assert [("device is unhealthy", "worn out")] == told.of(sick("a", "worn out"))
    assert [("device is degraded", "5 blocks left")] == told.of(worn("5 blocks left"))
    assert [] == told.of(worn("4 blocks left"))
    assert [("device is healthy", "")] == told.of(dp.Device("a"))


def test_another_reason_is_told(told: Told) -> None:
    assert [("device is unhealthy", "too hot")] == told.of(sick("a", "too hot"))
    assert [("device is unhealthy", "it is gone")] == told.of(sick("a", "it is gone"))


def test_a_reason_that_varies_by_itself_is_told_once(told: Told) -> None:
    first = told.of(sick("a", "91.5 C"), sick("b", "silent for 3 s"))
    assert [("device is unhealthy", "91.5 C"), ("device is unhealthy", "silent for 3 s")] == first
    for number in range(20):
        assert [] == told.of(sick("a", f"9{number} C"), sick("b", f"silent for {number}.1 s"))
    assert 2 == len(told.events.latest())


def test_a_device_that_went_and_came_back_is_told_of_again(told: Told) -> None:
    told.of(sick("a", "1 C"), dp.Device("b"))
    told.of()
    told.of(dp.Device("b"))
    assert [("device is unhealthy", "2 C")] == told.of(sick("a", "2 C"), dp.Device("b"))[:1]


def test_a_resource_that_was_forgotten_begins_anew(told: Told) -> None:
    told.of(sick("a", "1 C"))
    told.changes.forget(RESOURCE)
    assert [("device is unhealthy", "2 C")] == told.of(sick("a", "2 C"))


def test_many_changes_get_one_line_more(told: Told) -> None:
    found = told.of(*(sick(f"a{n}") for n in range(12)), *(dp.Device(f"b{n}") for n in range(3)))
    one_by_one = [("device is unhealthy", "out of order")] * 10
    assert [*one_by_one, ("health of more devices changed", "")] == found
    assert "3 healthy, 2 unhealthy" == told.events.latest()[0].detail
