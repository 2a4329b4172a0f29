"""The script alone: given a time, the state. No threads, no clock."""

import itertools
import json

import pytest

from deviceplugin_simulated.life import WELL, Action, Event, Life, State, Trouble
from deviceplugin_simulated.script import Process, Targets
from simulated.soak import main

IDS = ["a", "b", "c"]


def event(at: float, action: str, *ids: str, by: float = 0.0, reason: str = "") -> Event:
    return Event(at, Action(action), ids, reason, by)


def trouble_after(*actions: str) -> Trouble:
    events = [event(0, action, "a", by=2, reason=f"reason of {action}") for action in actions]
    return State().after(events).of("a")


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ((), WELL),
        (("unhealthy",), Trouble(sickness="reason of unhealthy")),
        (("fail",), Trouble(refusal="reason of fail")),
        (("slow",), Trouble(delay=2)),
        (("unplug",), Trouble(unplugged=True)),
        (("unhealthy", "recover"), WELL),
        (("slow", "fail", "unhealthy", "recover"), WELL),
        (("unplug", "plug"), WELL),
        (("unplug", "recover"), Trouble(unplugged=True)),
        (("unhealthy", "unplug", "plug"), Trouble(sickness="reason of unhealthy")),
        (("recover",), WELL),
        (("plug",), WELL),
    ],
)
def test_actions_change_a_device(actions: tuple[str, ...], expected: Trouble) -> None:
    assert expected == trouble_after(*actions)


def test_hanging_ends_and_a_crash_does_not() -> None:
    state = State().after([event(0, "hang"), event(0, "crash")])
    assert (True, True) == (state.hangs, state.crashed)
    state = state.after([event(0, "resume"), event(0, "unhealthy", "a")])
    assert (False, True) == (state.hangs, state.crashed)
    assert "simulated fault" == state.of("a").sickness


def test_a_trouble_says_everything_that_is_wrong() -> None:
    everything = Trouble(sickness="hot", refusal="busy", delay=1.5, unplugged=True)
    assert "unplugged, unhealthy: hot, failing: busy, slow by 1.5 s" == str(everything)
    assert "healthy" == str(WELL)


# Time.


TIMELINE = [event(1, "unhealthy", "a"), event(2, "unplug", "b"), event(3, "recover", "a")]


@pytest.mark.parametrize(
    ("now", "sick"), [(0.9, set()), (1, {"a"}), (2.5, {"a", "b"}), (3, {"b"}), (99, {"b"})]
)
def test_given_a_time_there_is_a_state(now: float, sick: set[str]) -> None:
    life = Life(TIMELINE)
    life.advance(now)
    assert sick == set(life.state.troubles)


def test_steps_of_any_size_lead_to_the_same_state() -> None:
    small, large = Life(TIMELINE), Life(TIMELINE)
    for tenth in range(26):
        small.advance(tenth / 10)
    large.advance(2.5)
    assert large.state == small.state


def test_it_tells_whether_anything_happened_and_what_is_next() -> None:
    life = Life(TIMELINE)
    assert ([], 1) == (life.advance(0.5), life.next_at)
    assert (True, 3) == (bool(life.advance(2)), life.next_at)
    assert (True, float("inf")) == (bool(life.advance(5)), life.next_at)


def test_what_is_added_happens_between_the_rest() -> None:
    life = Life.of(TIMELINE, [event(1.5, "hang")])
    life.add(event(0.5, "slow", "c", by=1))
    assert 0.5 == life.next_at
    life.add(event(2.7, "recover", "c"))
    assert life.advance(2)
    assert {"a", "b", "c"} == set(life.state.troubles)
    assert (2.7, True) == (life.next_at, life.state.hangs)
    life.advance(2.8)
    assert {"a", "b"} == set(life.state.troubles)


# Faults at random.


def some(process: Process, seed: int = 7, count: int = 200) -> list[Event]:
    return list(itertools.islice(process.events(Targets(IDS), seed), count))


PROCESS = Process(every=0.5, lasting=2)


def test_a_seed_always_makes_the_same_faults_and_another_seed_others() -> None:
    found = some(PROCESS)
    assert found == some(PROCESS) == sorted(found, key=lambda one: one.at)
    assert found != some(PROCESS, seed=8)
    # Across versions of Python and of this package too.
    assert [
        (0.196, "unhealthy", ("b",)),
        (0.233, "unhealthy", ("b",)),
        (1.436, "unhealthy", ("a",)),
    ] == [(round(one.at, 3), str(one.action), tuple(one.ids)) for one in some(PROCESS, count=3)]


def test_every_fault_passes_and_after_the_end_all_are_healthy() -> None:
    process = Process(every=0.1, lasting=3, until=20, faults=[*[*Action][:3], Action.UNPLUG])
    events = list(process.events(Targets(IDS), 1))
    assert 100 < len(events)
    life = Life(events)
    life.advance(20)
    assert {} != life.state.troubles
    life.advance(1000)
    assert State() == life.state


def test_the_mean_time_between_faults_is_as_told() -> None:
    process = Process(every=0.25, lasting=1, until=1000)
    beginnings = [one for one in process.events(Targets(IDS), 5) if one.action is Action.UNHEALTHY]
    beginnings += [one for one in process.events(Targets(IDS), 5) if one.action is Action.UNPLUG]
    assert 3800 < len(beginnings) < 4200


def test_only_the_faults_that_are_named_happen() -> None:
    process = Process(
        every=1, lasting=1, faults=[Action.SLOW, Action.HANG, Action.CRASH], slow_by=4
    )
    events = some(process)
    assert {"slow", "recover", "hang", "resume", "crash"} == {str(one.action) for one in events}
    assert {4.0} == {one.by for one in events if one.action is Action.SLOW}
    assert all(() == one.ids for one in events if one.action in {Action.HANG, Action.CRASH})


def test_without_devices_only_the_plugin_can_fail() -> None:
    assert [] == list(PROCESS.events(Targets([]), 1))
    process = Process(every=1, lasting=1, faults=[Action.SLOW, Action.HANG], until=20)
    assert {"hang", "resume"} == {str(one.action) for one in process.events(Targets([]), 1)}


@pytest.mark.slow
def test_the_kubelet_has_what_the_script_says_after_many_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--seconds=3", "--devices=10000"])
    assert 0 == main()
    told = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    outcome = {name: json.loads(value) for name, value in told}
    assert (10_000, 0) == (outcome["devices"], outcome["differences"])
    assert 500 < outcome["events"]
    assert 1000 < outcome["troubled"] < 2000
    assert 1 < outcome["lists"] or outcome["last_fault"] < outcome["first_list"]
    # As much as some thousand of its devices, not as the lists that were sent.
    assert max(outcome["memory_mib"]) - outcome["memory_mib"][0] < 20
