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
FIRST, SECOND = ("x.io/first", "a"), ("x.io/second", "a")
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


ANEW = seen(kubelet=NEW)
KNOWN = seen(B, kubelet=NEW, complete=True)


@pytest.mark.parametrize(
    ("observations", "due"),
    [
        pytest.param([seen(B), seen(B)], [[], [A]], id="seen free twice"),
        pytest.param([seen(B)] * 3, [[], [A], [A]], id="what was not told stays due"),
        pytest.param([seen(B), seen(B), seen(A, B), seen(B)], [[], [A], [], []], id="held again"),
        pytest.param([ANEW] * 4, [[]] * 4, id="a kubelet that has not heard of its pods"),
        pytest.param([seen(), ANEW], [[], []], id="free before the kubelet restarted"),
        pytest.param([ANEW, KNOWN, KNOWN], [[], [], [A]], id="until the next kubelet knows"),
        pytest.param(
            [seen(A, kubelet=NEW), ANEW, ANEW], [[], [], [A]], id="the next kubelet has listed it"
        ),
    ],
)
def test_when_a_device_that_a_pod_held_is_released(
    ledger: ReleaseLedger, observations: list[Observation], due: list[list[Key]]
) -> None:
    assert [[], *due] == observed(ledger, seen(A, B), *observations)


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


def looks(ledger: ReleaseLedger, *times: float) -> list[list[Key]]:
    """What is due at each of these times, at which nothing is held."""
    return [ledger.observe(seen(), (), at) for at in times]


def test_two_looks_in_a_row_are_one(ledger: ReleaseLedger) -> None:
    ledger.observe(seen(A), (), 100)
    assert [[], [], [A]] == looks(ledger, 101, 105.9, 106)


def test_an_allocation_that_came_to_no_pod_is_released_after_its_admission(
    ledger: ReleaseLedger,
) -> None:
    ledger.allocated([A], OLD, 100)
    assert [[], [], [], [], [A]] == looks(ledger, 101, 109.9, 110, 114.9, 115)
    ledger.forget([A, B])
    assert [[], []] == looks(ledger, 200, 205), "what has been told is told once"


def test_an_allocation_of_a_device_that_has_been_seen_free_starts_over(
    ledger: ReleaseLedger,
) -> None:
    observed(ledger, seen(A), seen())
    ledger.allocated([A], OLD, 106)
    assert [[], [], [A]] == looks(ledger, 110, 116, 121)


@pytest.mark.parametrize("busy", [[A], [A, B]])
def test_a_device_that_is_being_allocated_is_not_released(
    ledger: ReleaseLedger, busy: Collection[Key]
) -> None:
    observed(ledger, seen(A), seen())
    assert [] == ledger.observe(seen(), busy, 200)
    assert [] == ledger.observe(seen(), (), 300)
    assert [A] == ledger.observe(seen(), (), 305)


def test_an_allocation_by_an_old_kubelet_needs_one_that_knows(ledger: ReleaseLedger) -> None:
    ledger.allocated([A], OLD, 0)
    assert [[], [], []] == observed(ledger, ANEW, ANEW, ANEW)


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


def releases_of(plugin: ScriptedPlugin, metrics: Metrics | None = None) -> Releases:
    """Return what tells ``plugin`` of a device at the second look at which it is free."""
    resource = Resource(A[0], plugin)
    return Releases(lambda _name: resource, ReleaseLedger(0, 0, 0), metrics or Metrics())


@pytest.mark.parametrize("end", ["withdrawn", "closed", ""])
def test_only_what_is_still_served_is_told(end: str) -> None:
    plugin = ReleasedPlugin()
    served = {A[0]: Resource(A[0], plugin)}
    releases = Releases(served.get, ReleaseLedger(0, 0, 0), Metrics())
    releases.observe(seen(A))
    releases.observe(seen())
    if end == "withdrawn":
        served.clear()
    if end == "closed":
        releases.close()
    releases.observe(seen())
    releases.observe(seen())
    assert ([] if end else ["a"]) == plugin.told
    assert releases.confirm_in() is None


def test_a_release_that_fails_is_told_again_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [RuntimeError("cannot wipe")] * 2

    def fail() -> None:
        if failures:
            raise failures.pop()

    plugin, metrics = ReleasedPlugin(fail), Metrics()
    releases = releases_of(plugin, metrics)
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


@pytest.mark.parametrize("meanwhile", ["allocated", "being allocated", "closed"])
def test_what_happens_while_another_plugin_is_told_keeps_a_device_from_being_released(
    meanwhile: str,
) -> None:
    first, second = ReleasedPlugin(), ReleasedPlugin()
    resources = {
        key[0]: Resource(key[0], plugin) for key, plugin in ((FIRST, first), (SECOND, second))
    }
    releases = Releases(resources.get, ReleaseLedger(0, 0, 0), Metrics())
    releases.observe(seen(FIRST, SECOND))
    releases.observe(seen())
    with ExitStack() as allocating:

        def happen() -> None:
            if meanwhile == "closed":
                releases.close()
                return
            start = time.monotonic()
            allocating.enter_context(releases.allocating(resources[SECOND[0]], ["a"]))
            assert time.monotonic() - start < _releases._TIMEOUT
            if meanwhile == "allocated":
                allocating.close()

        first.then = happen
        releases.observe(seen())
        assert (["a"], []) == (first.told, second.told)


def test_a_plugin_that_does_not_ask_for_it_is_told_nothing() -> None:
    metrics = Metrics()
    releases = releases_of(ScriptedPlugin(), metrics)
    for held in ([A], [], [], []):
        releases.observe(seen(*held))
    assert (None, []) == (releases.confirm_in(), metrics.events.latest())
