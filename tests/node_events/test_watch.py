"""What is news, and what is not; with a clock of the test's own."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from deviceplugin.tools.events import _watch
from deviceplugin.tools.events._notice import Fact, Notice
from deviceplugin.tools.events._watch import Watch

R = "example.com/camera"
AT = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
QUIET = 300.0


def device(name: str, reason: str = "", *, since: float = 0) -> Fact:
    """Return a device that is well unless there is a ``reason``."""
    return Fact(R, name, not reason, reason, (AT - timedelta(seconds=since)).isoformat())


def registration(problem: str = "") -> Fact:
    return Fact(R, "", not problem, problem)


def seen(watch: Watch, now: float, *facts: Fact) -> Notice | None:
    assert 0 == watch.observe(facts, now, AT + timedelta(seconds=now))
    return watch.news(now)


def told(watch: Watch, now: float, *facts: Fact) -> Notice:
    """Return what is news of ``facts``, and has been reported then."""
    notice = seen(watch, now, *facts)
    assert notice is not None
    watch.reported(notice, now)
    return notice


def names(notice: Notice | None) -> list[str]:
    return [] if notice is None else [fact.device for fact in notice.facts]


def test_nothing_is_new_about_what_is_well_or_has_recovered_before_it_could_be_told() -> None:
    watch = Watch(QUIET)
    assert watch.news(0) is None
    assert seen(watch, 0, registration(), device("a")) is None
    assert ["b"] == names(seen(watch, 10, registration(), device("a"), device("b", "too hot")))
    assert seen(watch, 20, registration(), device("a"), device("b")) is None


def test_devices_that_become_unhealthy_are_told_once_and_a_recovery_too() -> None:
    watch, others = Watch(QUIET), [f"d{n}" for n in range(1000)]
    ill = [device(name, "no power") for name in others]
    assert seen(watch, 0, device("a"), *map(device, others)) is None
    notice = told(watch, 10, device("a"), *ill)
    assert Notice(facts=tuple(ill), unhealthy=1000, devices=1001, changes=1000) == notice
    assert watch.news(10) is None
    assert seen(watch, 20, device("a"), *ill) is None
    assert seen(watch, 4000, device("a"), device("d0", "hotter"), *ill[1:]) is None
    notice = told(watch, 4010, device("a"), device("d0"), *ill[1:])
    assert Notice(facts=(device("d0"),), unhealthy=999, devices=1001) == notice


def test_of_what_flaps_each_state_is_told_once_in_a_quiet_period() -> None:
    watch = Watch(QUIET)
    said: list[tuple[float, bool, int]] = []
    for step in range(361):
        now = step * 10.0
        notice = seen(watch, now, device("a", "loose" if step % 2 else ""))
        if notice is not None:
            said.append((now, notice.good, notice.changes))
            watch.reported(notice, now)
    for good in (True, False):
        times = [now for now, state, _ in said if state is good]
        assert 12 == len(times)
        assert all(later - now >= QUIET for now, later in itertools.pairwise(times))
    assert {1, 29} == {changes for _, _, changes in said}


def test_the_last_state_of_what_flapped_is_told_when_the_quiet_period_is_over() -> None:
    watch = Watch(QUIET)
    seen(watch, 0, device("a"))
    for now, reason in ((10, "loose"), (20, "")):
        told(watch, now, device("a", reason))
    assert seen(watch, 30, device("a", "loose")) is None
    assert seen(watch, 300, device("a", "loose")) is None
    assert ["a"] == names(seen(watch, 310, device("a", "loose")))


def test_resources_and_states_are_told_apart_in_the_order_of_their_changes() -> None:
    watch = Watch(QUIET)
    other = Fact("example.com/other", "a", good=True, since="x")
    seen(watch, 0, device("a", "ill"), device("b"), other)
    notice = seen(watch, 10, device("a"), device("b"), other._replace(good=False))
    assert notice is not None
    assert "example.com/other" == notice.facts[0].resource
    seen(watch, 20, device("a"), device("b", "ill"), other._replace(good=False))
    said = []
    while notice := watch.news(20):
        said.append((notice.facts[0].resource, names(notice), notice.good))
        watch.reported(notice, 20)
    assert [("example.com/other", ["a"], False), (R, ["b"], False)] == said


def test_a_registration_that_is_soon_back_is_no_news() -> None:
    watch, gone = Watch(QUIET), registration("waiting for the kubelet")
    assert seen(watch, 0, gone) is None
    assert seen(watch, 20, registration()) is None
    assert seen(watch, 30, gone) is None
    assert seen(watch, 59, gone) is None
    first = seen(watch, 60, gone)
    notice = told(watch, 65, gone)
    assert ("DevicesNotRegistered", [""]) == (notice.reason, names(notice))
    assert first == notice, "the same news is known by the same moment"
    assert seen(watch, 70, registration()) is None
    assert "DevicesRegistered" == told(watch, 100, registration()).reason


def test_what_was_ill_long_before_the_start_has_been_told() -> None:
    watch = Watch(QUIET)
    old, fresh = device("old", "ill", since=301), device("new", "ill", since=299)
    assert ["new"] == names(seen(watch, 0, old, fresh))
    assert ["new"] == names(seen(watch, 10, old, fresh))
    told(watch, 20, device("old"), fresh)
    assert ["old"] == names(watch.news(20)), "its recovery is"


def test_a_moment_that_cannot_be_read_is_not_old() -> None:
    odd = Fact(R, "a", good=False, reason="ill", since="yesterday")
    assert ["a"] == names(seen(Watch(QUIET), 0, odd))
    assert ["a"] == names(seen(Watch(QUIET), 0, odd._replace(since="2020-01-01T00:00:00")))


def test_all_that_is_not_well_is_news_for_who_asks_once() -> None:
    watch = Watch(QUIET, all_news=True)
    notice = told(watch, 0, registration("gone"), device("old", "ill", since=9999))
    other = watch.news(0)
    assert other is not None
    assert {"DevicesNotRegistered", "DeviceUnhealthy"} == {notice.reason, other.reason}


def test_a_plugin_that_restarts_brings_no_old_news() -> None:
    watch = Watch(QUIET)
    seen(watch, 0, registration(), device("a"))
    told(watch, 10, registration(), device("a", "ill"))
    assert seen(watch, 400) is None
    assert seen(watch, 410, registration("waiting"), device("a", "ill", since=-410)) is None
    assert seen(watch, 420, registration(), device("a", "ill", since=-410)) is None


def test_a_device_that_is_gone_is_no_news_and_is_forgotten() -> None:
    watch = Watch(QUIET)
    seen(watch, 0, device("a"), device("b"))
    assert ["a"] == names(seen(watch, 10, device("a", "ill"), device("b")))
    assert seen(watch, 20, device("b")) is None
    assert 2 == len(watch._subjects)
    seen(watch, 20 + _watch.FORGET, device("b"))
    assert [(R, "b", None)] == list(watch._subjects)


def test_more_than_there_is_room_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watch, "MAX_SUBJECTS", 3)
    watch = Watch(QUIET)
    many = [device(f"d{n}") for n in range(5)]
    assert 2 == watch.observe(many, 0)
    assert 2 == watch.observe([device(f"d{n}", "ill") for n in range(5)], 10)
    assert ["d0", "d1", "d2"] == names(watch.news(10))


def test_what_changes_while_it_is_told_is_told_next() -> None:
    watch = Watch(QUIET)
    seen(watch, 0, device("a"))
    notice = seen(watch, 10, device("a", "ill"))
    assert notice is not None
    seen(watch, 20, device("a"))
    watch.reported(notice, 21)
    following = watch.news(21)
    assert following is not None
    assert (True, ["a"], 1) == (following.good, names(following), following.changes)


def test_what_is_forgotten_while_it_is_told_stays_forgotten() -> None:
    watch = Watch(QUIET)
    notice = seen(watch, 0, device("a", "ill"))
    assert notice is not None
    seen(watch, 1000)
    watch.reported(notice, 1000)
    assert {} == watch._subjects


def test_each_change_of_state_is_told_and_a_reason_that_varies_is_not() -> None:
    watch = Watch(QUIET)
    well, ill = Fact(R, "a", good=True), Fact(R, "a", good=False, reason="no block left")
    worn = well._replace(reason="3 blocks left")
    assert seen(watch, 0, well) is None
    notice = told(watch, 10, worn)
    assert ("Warning", "DeviceDegraded") == (notice.kind, notice.reason)
    assert f"{R}: a is degraded: 3 blocks left (0 of 1 unhealthy)" == notice.message
    assert seen(watch, 20, worn._replace(reason="2 blocks left")) is None
    assert "DeviceUnhealthy" == told(watch, 30, ill).reason
    assert seen(watch, 40, worn) is None  # it was told within the quiet period
    assert "DeviceDegraded" == told(watch, 400, worn).reason
    notice = told(watch, 800, well)
    assert ("Normal", "DeviceHealthy") == (notice.kind, notice.reason)


def test_the_state_of_a_registration_has_two_values() -> None:
    assert "good" == Fact(R, "", good=True, reason="odd").state
    assert not Notice((Fact(R, "", good=False),)).good
