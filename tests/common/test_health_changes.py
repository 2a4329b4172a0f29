"""Telling of devices whose health has changed."""

import logging

import pytest

import deviceplugin as dp
from deviceplugin._discovery.health_changes import HealthChanges
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.endpoint_status import EndpointStatus
from deviceplugin._telemetry.events import ALL_AT_ONCE, ALL_PAUSE, AT_ONCE, PAUSE, Events
from deviceplugin._telemetry.metrics import Metrics
from scripted_plugin import RESOURCE, ScriptedPlugin, sick


class Told:
    """A resource, and what is told of it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.events = Events()
        self.now = 0.0
        self.changes = HealthChanges(self.events, lambda: self.now)
        self.resource = Resource(RESOURCE, ScriptedPlugin())

    def of(self, *devices: dp.Device) -> list[tuple[str, str]]:
        """Publish ``devices`` and return what is told of them: the event and the reason."""
        self._caplog.clear()
        self.changes.report(self.resource, self.resource.publish(devices))
        if self._caplog.records:
            self.last = self._caplog.records[-1]
        return [(r.getMessage(), vars(r).get("reason", "")) for r in self._caplog.records]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_a_change_of_health_or_of_its_reason_is_told_each_time(told: Told) -> None:
    for _ in range(3):
        assert [("device is healthy", "")] == told.of(dp.Device("a"))
        assert [] == told.of(dp.Device("a"))
        assert [("device is unhealthy", "too hot")] == told.of(sick("a", "too hot"))
        assert [("device is unhealthy", "it is gone")] == told.of(sick("a", "it is gone"))
    assert 9 == len(told.events.latest())


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


def test_a_reason_that_varies_by_itself_is_told_once(told: Told) -> None:
    first = told.of(sick("a", "91.5 C"), sick("b", "silent for 3 s"))
    assert [("device is unhealthy", "91.5 C"), ("device is unhealthy", "silent for 3 s")] == first
    for number in range(20):
        assert [] == told.of(sick("a", f"9{number} C"), sick("b", f"silent for {number}.1 s"))
    assert 2 == len(told.events.latest())


def test_a_device_that_came_back_or_whose_resource_was_forgotten_is_told_of_again(
    told: Told,
) -> None:
    told.of(sick("a", "1 C"), dp.Device("b"))
    told.of()
    told.of(dp.Device("b"))
    assert [("device is unhealthy", "2 C")] == told.of(sick("a", "2 C"), dp.Device("b"))[:1]
    told.changes.forget(RESOURCE)
    assert [("device is unhealthy", "3 C")] == told.of(sick("a", "3 C"), dp.Device("b"))[:1]


def test_many_changes_get_one_line_more(told: Told) -> None:
    found = told.of(*(sick(f"a{n}") for n in range(12)), *(dp.Device(f"b{n}") for n in range(3)))
    one_by_one = [("device is unhealthy", "out of order")] * 10
    assert [*one_by_one, ("health of more devices changed", "")] == found
    assert "3 healthy, 2 unhealthy" == told.events.latest()[0].detail


def flap(told: Told, changes: int) -> list[tuple[str, str]]:
    """Let a device change so many times, and return all that is told."""
    states = (dp.Device("a"), sick("a", "too hot"))
    return [one for number in range(changes) for one in told.of(states[number % 2])]


def test_a_device_that_flaps_is_told_of_a_few_times_and_its_last_state_later(told: Told) -> None:
    found = flap(told, 1000)
    assert (AT_ONCE, "device is healthy") == (len(found), found[0][0])
    told.now = PAUSE - 1
    assert [] == told.of(sick("a", "too hot"))
    told.now = PAUSE
    assert [("device is unhealthy", "too hot")] == told.of(sick("a", "too hot"))
    assert 1000 - AT_ONCE - 1 == vars(told.last)["skipped"]
    told.now = 10 * PAUSE
    assert [] == told.of(sick("a", "too hot"))
    assert [("device is healthy", "")] == told.of(dp.Device("b"))  # which it does not hide
    told.now += 2 * AT_ONCE * PAUSE
    assert AT_ONCE <= len(flap(told, 100))


def test_devices_with_a_new_name_each_time_are_told_of_within_a_limit(told: Told) -> None:
    lines = [one for number in range(500) for one in told.of(dp.Device(f"a{number}"))]
    assert ALL_AT_ONCE == len(lines)
    told.now = ALL_PAUSE
    assert [("device is healthy", "")] == told.of(dp.Device("a500"))
    assert 500 - ALL_AT_ONCE == vars(told.last)["gone"]


def test_what_waits_is_told_of_when_the_resource_is_looked_at_again(told: Told) -> None:
    for number in range(ALL_AT_ONCE):
        told.of(dp.Device(f"a{number}"))
    many = [sick(f"b{number:02}") for number in range(12)]
    assert [] == told.of(*many)
    told.now = 11 * ALL_PAUSE
    found = [event for event, _ in told.of(*many)]
    assert [*["device is unhealthy"] * 10, "health of more devices changed"] == found
    assert [] == told.of(*many)


def test_a_resource_that_comes_and_goes_with_its_device_has_one_allowance(told: Told) -> None:
    lines = 0
    for _ in range(100):
        lines += len(told.of(dp.Device("a")))
        told.of()
        told.changes.forget(RESOURCE)
    assert AT_ONCE == lines


def test_a_resource_that_comes_and_goes_is_told_of_within_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    for _ in range(100):
        status = EndpointStatus(RESOURCE, metrics)
        status.registered()
        status.withdrawn()
    EndpointStatus("example.com/other", metrics).lost("the stream ended")
    found = [record.getMessage() for record in caplog.records]
    assert [*["registered", "resource withdrawn"] * (AT_ONCE // 2), "registration lost"] == found
