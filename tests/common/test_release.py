"""What makes a device released, without a kubelet."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution import releases as _releases
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._attribution.releases import Observation, ReleaseLedger, Releases
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import Metrics
from patience import PATIENCE
from scripted_plugin import ScriptedPlugin

A, B = ("x.io/dev", "a"), ("x.io/dev", "b")
OLD, NEW = (1, 1, 1), (2, 2, 2)
CONFIRM, ADMISSION, RECORDED = 5.0, 10.0, 1000.0


@pytest.fixture
def ledger() -> ReleaseLedger:
    return ReleaseLedger(CONFIRM, ADMISSION, RECORDED)


def seen(
    *held: Key,
    kubelet: tuple[int, int, int] | None = OLD,
    complete: bool = False,
    recorded: Collection[Key] = (),
) -> Observation:
    return Observation(frozenset(held), kubelet, complete, frozenset(recorded))


def observed(
    ledger: ReleaseLedger, *observations: Observation, start: float = 100.0
) -> list[list[Key]]:
    """What is due in each of these, one ``CONFIRM`` after the other."""
    return [
        ledger.observe(s, (), start + CONFIRM * number) for number, s in enumerate(observations)
    ]


def test_a_device_is_released_when_it_was_seen_free_twice(ledger: ReleaseLedger) -> None:
    assert [[], [], [A]] == observed(ledger, seen(A, B), seen(B), seen(B))


def test_what_is_recorded_for_a_pod_that_is_not_listed_is_not_released(
    ledger: ReleaseLedger,
) -> None:
    ledger.allocated([A, B], OLD, 90)
    recorded = [seen(recorded=[A])] * 3
    assert [[], [B], [B]] == observed(ledger, *recorded)
    assert [[B], [A, B]] == observed(ledger, seen(), seen(), start=200)


def test_what_is_recorded_is_released_after_a_day(ledger: ReleaseLedger) -> None:
    ledger.allocated([A], OLD, 100)
    late = 100 + RECORDED
    assert [[], []] == observed(ledger, *[seen(recorded=[A])] * 2, start=late - 2 * CONFIRM)
    assert [[], [A]] == observed(ledger, *[seen(recorded=[A])] * 2, start=late)


def test_two_looks_in_a_row_are_one(ledger: ReleaseLedger) -> None:
    ledger.observe(seen(A), (), 100)
    assert [[], [], [A]] == [ledger.observe(seen(), (), at) for at in (101, 105.9, 106)]


def test_what_has_been_told_is_told_once(ledger: ReleaseLedger) -> None:
    assert [[], [], [A]] == observed(ledger, seen(A), seen(), seen())
    ledger.forget([A, B])
    assert [[], []] == observed(ledger, seen(), seen(), start=200)


def test_what_could_not_be_told_stays_due(ledger: ReleaseLedger) -> None:
    assert [[], [], [A], [A]] == observed(ledger, seen(A), seen(), seen(), seen())


def test_what_could_not_be_told_is_no_longer_due_once_it_is_held_again(
    ledger: ReleaseLedger,
) -> None:
    assert [[], [], [A], [], []] == observed(ledger, *[seen(A), seen(), seen(), seen(A), seen()])


@pytest.mark.parametrize("busy", [[A], [A, B]])
def test_a_device_that_is_being_allocated_is_not_released(
    ledger: ReleaseLedger, busy: Collection[Key]
) -> None:
    observed(ledger, seen(A), seen())
    assert [] == ledger.observe(seen(), busy, 200)
    assert [] == ledger.observe(seen(), (), 300)
    assert [A] == ledger.observe(seen(), (), 305)


def test_an_allocation_that_came_to_no_pod_is_released_after_its_admission(
    ledger: ReleaseLedger,
) -> None:
    ledger.allocated([A], OLD, 100)
    times = (101, 109.9, 110, 114.9, 115)
    assert [[], [], [], [], [A]] == [ledger.observe(seen(), (), at) for at in times]


def test_an_allocation_of_a_device_that_has_been_seen_free_starts_over(
    ledger: ReleaseLedger,
) -> None:
    observed(ledger, seen(A), seen())
    ledger.allocated([A], OLD, 106)
    assert [[], [], [A]] == [ledger.observe(seen(), (), at) for at in (110, 116, 121)]


def test_a_kubelet_that_has_not_heard_of_its_pods_releases_nothing(ledger: ReleaseLedger) -> None:
    empty = seen(kubelet=NEW)
    assert [[], [], [], [], []] == observed(ledger, seen(A), empty, empty, empty, empty)


def test_what_was_free_before_a_kubelet_restart_is_not_confirmed_by_the_next_kubelet(
    ledger: ReleaseLedger,
) -> None:
    assert [[], [], []] == observed(ledger, seen(A), seen(), seen(kubelet=NEW))


def test_a_pod_that_ended_while_the_kubelet_was_down_is_believed_once_it_knows_its_pods(
    ledger: ReleaseLedger,
) -> None:
    known = seen(B, kubelet=NEW, complete=True)
    assert [[], [], [], [A]] == observed(ledger, seen(A), seen(kubelet=NEW), known, known)


def test_a_pod_that_the_next_kubelet_has_listed_is_believed_to_be_gone_as_before(
    ledger: ReleaseLedger,
) -> None:
    again, gone = seen(A, kubelet=NEW), seen(kubelet=NEW)
    assert [[], [], [], [A]] == observed(ledger, seen(A), again, gone, gone)


def test_an_allocation_by_an_old_kubelet_needs_one_that_knows(ledger: ReleaseLedger) -> None:
    ledger.allocated([A], OLD, 0)
    gone = seen(kubelet=NEW)
    assert [[], [], []] == observed(ledger, gone, gone, gone)


def test_a_look_is_wanted_where_it_can_confirm_something(ledger: ReleaseLedger) -> None:
    assert ledger.confirm_in(100) is None
    observed(ledger, seen(A))
    assert ledger.confirm_in(101) is None
    ledger.observe(seen(), (), 105)
    assert 4 == ledger.confirm_in(106)
    assert ledger.confirm_in(110) is None  # what failed is tried again with the next look


class ReleasedPlugin(ScriptedPlugin):
    """Remembers what it was told of."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__("a")
        self.told: list[str] = []
        self.then = then

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        self.told += [device.id for device in devices]
        self.then()


@pytest.mark.parametrize(("served", "told"), [(True, ["a"]), (False, [])])
def test_only_what_is_still_served_is_told(served: bool, told: list[str]) -> None:
    plugin = ReleasedPlugin()
    served_now = {"x.io/dev": Resource("x.io/dev", plugin)}
    releases = Releases(served_now.get, ReleaseLedger(0, 0, 0), Metrics())
    releases.observe(seen(A))
    releases.observe(seen())
    if not served:
        served_now.clear()
    releases.observe(seen())
    releases.observe(seen())
    assert told == plugin.told
    assert releases.confirm_in() is None


def test_a_plugin_that_stops_is_told_nothing_more() -> None:
    plugin = ReleasedPlugin()
    releases = Releases(lambda name: Resource(name, plugin), ReleaseLedger(0, 0, 0), Metrics())
    releases.observe(seen(A))
    releases.observe(seen())
    releases.close()
    releases.observe(seen())
    assert [] == plugin.told


def test_a_release_that_fails_is_told_again_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [RuntimeError("cannot wipe")] * 2

    def fail() -> None:
        if failures:
            raise failures.pop()

    plugin, metrics = ReleasedPlugin(fail), Metrics()
    releases = Releases(lambda name: Resource(name, plugin), ReleaseLedger(0, 0, 0), metrics)
    for held in ([A], [], [], [], [], []):
        releases.observe(seen(*held))
    assert ["a"] * 3 == plugin.told
    assert 1 == metrics.released.labels(A[0]).value
    (told,) = [one for one in caplog.records if one.message == "released() failed"]
    place = "RuntimeError: cannot wipe (tests/common/test_release.py:"
    assert vars(told)["error"].startswith(place)


def test_an_allocation_waits_for_the_release_of_its_device() -> None:
    wiping, go_on = threading.Event(), threading.Event()

    def wipe() -> None:
        wiping.set()
        assert go_on.wait(PATIENCE)

    resource = Resource(A[0], plugin := ReleasedPlugin(wipe))
    releases = Releases(lambda _name: resource, ReleaseLedger(0, 0, 0), Metrics())
    releases.observe(seen(A))
    releases.observe(seen())

    def allocate() -> bool:
        with releases.allocating(resource, ["a"]):
            return go_on.is_set()

    with ThreadPoolExecutor(2) as pool:
        released = pool.submit(releases.observe, seen())
        assert wiping.wait(PATIENCE)
        with releases.allocating(resource, ["b"]):  # does not wait
            allocated = pool.submit(allocate)
        go_on.set()
        assert allocated.result(PATIENCE)
        released.result(PATIENCE)
    assert ["a"] == plugin.told


FIRST, SECOND = ("x.io/first", "a"), ("x.io/second", "a")


def released_one_after_the_other(
    first: ReleasedPlugin, second: ReleasedPlugin
) -> tuple[Releases, Resource]:
    """Both plugins' device is about to be released: one more look, and ``first`` is told."""
    resources = {
        key[0]: Resource(key[0], plugin) for key, plugin in ((FIRST, first), (SECOND, second))
    }
    releases = Releases(resources.get, ReleaseLedger(0, 0, 0), Metrics())
    releases.observe(seen(FIRST, SECOND))
    releases.observe(seen())
    return releases, resources[SECOND[0]]


def test_what_is_allocated_while_another_plugin_is_told_is_not_released() -> None:
    first, second = ReleasedPlugin(), ReleasedPlugin()
    releases, resource = released_one_after_the_other(first, second)
    waited: list[float] = []

    def allocate() -> None:
        start = time.monotonic()
        with releases.allocating(resource, ["a"]):
            waited.append(time.monotonic() - start)

    first.then = allocate
    releases.observe(seen())
    assert (["a"], []) == (first.told, second.told)
    assert waited[0] < _releases._TIMEOUT


def test_what_is_being_allocated_while_another_plugin_is_told_is_not_released() -> None:
    first, second = ReleasedPlugin(), ReleasedPlugin()
    releases, resource = released_one_after_the_other(first, second)
    with ExitStack() as allocating:
        first.then = lambda: allocating.enter_context(releases.allocating(resource, ["a"]))
        releases.observe(seen())
        assert (["a"], []) == (first.told, second.told)


def test_a_plugin_that_stops_while_another_is_told_is_told_nothing() -> None:
    first, second = ReleasedPlugin(), ReleasedPlugin()
    releases, _ = released_one_after_the_other(first, second)
    first.then = releases.close
    releases.observe(seen())
    assert (["a"], []) == (first.told, second.told)


def test_a_plugin_that_does_not_ask_for_it_is_told_nothing() -> None:
    metrics = Metrics()
    releases = Releases(
        lambda name: Resource(name, ScriptedPlugin()), ReleaseLedger(0, 0, 0), metrics
    )
    for held in ([A], [], [], []):
        releases.observe(seen(*held))
    assert releases.confirm_in() is None
    assert [] == metrics.events.latest()
