"""The next step of a roll-out, on simulated nodes, by chance and by cases."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.crd.specification import Rollout
from deviceplugin_operator.rollout.step import Member, Pod, Progress, Step, Taken, next_step

OLD, NEW, NEXT = "old", "new", "next"
RESOURCE = "example.com/a"
SETTLE, TICK = 4.0, 2.0


@dataclass
class Simulation:
    """Nodes with a DaemonSet that makes a pod where there is none, after a few ticks by chance.

    A pod that is late is refused, so each wait lasts four ticks at most: both end before a deadline
    of 30 s.
    """

    rollout: Rollout
    count: int
    target: str = NEW
    good: str = OLD
    broken: frozenset[str] = frozenset()
    """Nodes on which no pod ever becomes ready."""
    bad: frozenset[str] = frozenset()
    """Revisions that are ready nowhere."""
    fewer: frozenset[str] = frozenset()
    """Revisions that have one device less."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 1000.0
    nodes: dict[str, Member] = field(init=False)
    progress: Progress = field(init=False)
    made: str = field(init=False)
    """What the DaemonSet makes."""
    touched: set[str] = field(default_factory=set)
    most_away: int = 0
    unlucky: Counter[str] = field(default_factory=Counter)
    """How many ticks in a row nothing has happened on a node."""

    def __post_init__(self) -> None:
        self.made = self.target
        names = [f"n{number:02}" for number in range(self.count)]
        self.nodes = {
            name: Member(
                name, True, {RESOURCE: 4}, Pod(f"p-{name}", "u", OLD, name not in self.broken)
            )
            for name in names
        }
        self.progress = Progress(self.target, self.good)

    def tick(self) -> Step:
        self.now += TICK
        for name, node in self.nodes.items():
            self.nodes[name] = self._lived(node)
        # Written down and read again each time, as by an operator that is killed all the time.
        told = {
            "metadata": {
                "annotations": {"deviceplugin.dev/rollout": progress_note.written(self.progress)}
            }
        }
        before = progress_note.read(told)
        assert before == self.progress
        found = next_step(self.nodes.values(), self.rollout, before, self.now, SETTLE)
        self.progress, self.made = found.progress, found.progress.target
        for pod in found.delete:
            self._delete(pod)
        taken = [self.nodes[name].pod for name in self.touched - self.broken]
        away = [pod for pod in taken if pod is None or not pod.ready]
        self.most_away = max(self.most_away, len(away))
        return found

    def _lived(self, node: Member) -> Member:
        if node.pod and node.pod.ready:
            return node
        if self.chance.random() > 0.6 and self.unlucky[node.name] < 3:
            self.unlucky[node.name] += 1
            return node
        self.unlucky[node.name] = 0
        if node.pod is None:
            return replace(node, pod=Pod(f"p-{self.chance.random()}", "u", self.made, ready=False))
        ready = node.name not in self.broken and node.pod.revision not in self.bad
        devices = {RESOURCE: (3 if node.pod.revision in self.fewer else 4) if ready else 0}
        return replace(node, pod=replace(node.pod, ready=ready), devices=devices)

    def _delete(self, pod: Pod) -> None:
        (name,) = (one.name for one in self.nodes.values() if one.pod == pod)
        self.touched.add(name)
        self.nodes[name] = replace(self.nodes[name], pod=None, devices={RESOURCE: 0})

    def run(self, until: Callable[[Step], bool], ticks: int = 2000) -> Step:
        for _ in range(ticks):
            if until(found := self.tick()):
                return found
        raise AssertionError(f"no end: {self.progress}")


def done(found: Step) -> bool:
    return found.state == "Done"


def ended(found: Step) -> bool:
    return found.state in {"Done", "Halted"} or (
        found.state == "RolledBack" and not found.progress.taken
    )


ROLLOUTS = st.builds(
    Rollout,
    canary=st.integers(1, 3),
    max_unavailable=st.integers(1, 8) | st.sampled_from(["10%", "30%", "100%"]),
    deadline=st.just(30.0),
)


@settings(max_examples=150, deadline=None)
@given(
    ROLLOUTS,
    st.integers(1, 25),
    st.sets(st.integers(0, 24), max_size=2),
    st.integers(0, 10**6),
)
def test_a_good_revision_comes_to_all_nodes_and_never_too_many_are_away(
    rollout: Rollout, count: int, broken: set[int], seed: int
) -> None:
    names = frozenset(f"n{number:02}" for number in broken if number < count - 1)
    nodes = Simulation(rollout, count, broken=names, chance=random.Random(seed))
    nodes.run(done)
    assert NEW == nodes.progress.good
    assert all(one.pod and one.pod.revision == NEW for one in nodes.nodes.values())
    assert nodes.most_away <= max(rollout.at_once(count), min(rollout.canary, count))


@settings(max_examples=150, deadline=None)
@given(
    ROLLOUTS,
    st.integers(2, 25),
    st.sets(st.integers(0, 24), max_size=2),
    st.sampled_from(["bad", "fewer"]),
    st.integers(0, 10**6),
)
def test_a_bad_revision_touches_the_canaries_only_and_they_get_the_good_one_back(
    rollout: Rollout, count: int, broken: set[int], how: str, seed: int
) -> None:
    names = frozenset(f"n{number:02}" for number in broken if number < count - 1)
    nodes = Simulation(rollout, count, broken=names, chance=random.Random(seed))
    setattr(nodes, how, frozenset({NEW}))
    nodes.run(ended)
    assert (NEW, OLD) == (nodes.progress.refused, nodes.progress.target)
    well = [one for name, one in nodes.nodes.items() if name not in names]
    assert all(one.pod and one.pod.revision == OLD and one.pod.ready for one in well)
    assert len(nodes.touched - names) <= rollout.canary
    assert nodes.progress.reason


def test_a_bad_revision_touches_one_node_of_forty() -> None:
    nodes = Simulation(Rollout(deadline=30), 40, bad=frozenset({NEW}))
    nodes.run(ended)
    assert {"n00"} == nodes.touched
    assert "n00: its pod is not ready after 30 s" == nodes.progress.reason


def test_fewer_devices_are_as_bad_as_none_unless_they_are_allowed() -> None:
    nodes = Simulation(Rollout(deadline=30), 3, fewer=frozenset({NEW}))
    nodes.run(ended)
    assert f"n00: {RESOURCE} 4 -> 3 after 30 s" == nodes.progress.reason
    allowed = Rollout(deadline=30, allow_fewer_devices=True)
    nodes = Simulation(allowed, 3, fewer=frozenset({NEW}))
    nodes.run(done)
    assert NEW == nodes.progress.good


def test_halting_leaves_everything_as_it_is() -> None:
    nodes = Simulation(Rollout(deadline=30, on_failure="Halt"), 5, bad=frozenset({NEW}))
    nodes.run(lambda found: found.state == "Halted")
    before = dict(nodes.nodes)
    for _ in range(50):
        assert () == nodes.tick().delete
    assert before == nodes.nodes
    assert (NEW, NEW) == (nodes.progress.refused, nodes.progress.target)


def test_what_was_halted_and_becomes_well_is_good_and_goes_on() -> None:
    nodes = Simulation(Rollout(deadline=30, on_failure="Halt"), 3, bad=frozenset({NEW}))
    nodes.run(lambda found: found.state == "Halted")
    nodes.bad = frozenset()
    for _ in range(30):
        nodes.tick()
    canary = nodes.nodes["n00"].pod
    assert canary is not None
    assert (NEW, True) == (canary.revision, canary.ready)
    assert {"n00"} == nodes.touched  # the others wait for a change of the object


def test_the_first_of_all_revisions_has_nothing_to_go_back_to() -> None:
    nodes = Simulation(Rollout(deadline=30), 3, good="", bad=frozenset({NEW}))
    nodes.nodes = {name: replace(one, pod=None) for name, one in nodes.nodes.items()}
    found = nodes.run(lambda one: one.state == "Halted")
    assert (NEW, NEW) == (found.progress.refused, found.progress.target)
    nodes.bad = frozenset()
    nodes.run(done)
    assert (NEW, "", "") == (nodes.progress.good, nodes.progress.refused, nodes.progress.reason)


def test_a_change_on_the_way_keeps_what_nodes_had_before() -> None:
    nodes = Simulation(Rollout(deadline=30), 4, bad=frozenset({NEW}))
    nodes.tick()
    nodes.tick()
    assert {"n00"} == nodes.touched
    nodes.progress = nodes.progress.towards(NEXT)
    nodes.made = NEXT
    assert {RESOURCE: 4} == nodes.progress.taken["n00"].before
    nodes.run(done)
    assert NEXT == nodes.progress.good


def test_a_node_that_is_not_ready_is_named_and_not_waited_for() -> None:
    nodes = Simulation(Rollout(deadline=30), 4)
    nodes.tick()
    nodes.nodes["n00"] = replace(nodes.nodes["n00"], ready=False)
    nodes.nodes["n03"] = replace(nodes.nodes["n03"], ready=False)
    assert "not ready, skipped: n00, n03" in nodes.tick().message
    nodes.run(done)
    assert NEW == nodes.progress.good
    assert Taken(0.0, {RESOURCE: 4}, True) == nodes.progress.taken["n00"]
    nodes.nodes = {name: replace(one, ready=True) for name, one in nodes.nodes.items()}
    nodes.run(lambda _: all(one.pod and one.pod.revision == NEW for one in nodes.nodes.values()))
    assert "" == nodes.progress.refused


def test_the_canary_is_a_node_that_was_well_and_has_devices() -> None:
    nodes = Simulation(Rollout(), 5, broken=frozenset({"n00", "n01"}))
    nodes.nodes["n02"] = replace(nodes.nodes["n02"], devices={RESOURCE: 0})
    nodes.tick()
    assert {"n03"} == nodes.touched


def test_a_node_that_comes_on_the_way_counts_as_a_canary() -> None:
    nodes = Simulation(Rollout(deadline=30), 3)
    nodes.nodes["new"] = Member("new", True, {}, Pod("p", "u", NEW, ready=False))
    found = nodes.tick()
    assert ((), {"new"}) == (found.delete, {*found.progress.taken})


def test_devices_are_counted_once_the_kubelet_has_had_time_to_report_them() -> None:
    rollout, pod = Rollout(deadline=30), Pod("p", "u", NEW, ready=True)
    progress = Progress(NEW, OLD, taken={"n": Taken(100.0, {RESOURCE: 4}, True)})
    stale = [Member("n", True, {RESOURCE: 4}, pod)]
    found = next_step(stale, rollout, progress, 102.0, SETTLE)
    assert ("Progressing", 102.0) == (found.state, found.progress.taken["n"].ready)
    fresh = [Member("n", True, {RESOURCE: 3}, pod)]
    assert "Progressing" == next_step(fresh, rollout, found.progress, 107.0, SETTLE).state
    assert "Done" == next_step(stale, rollout, found.progress, 107.0, SETTLE).state


def test_devices_that_were_reported_since_the_pod_was_ready_count_at_once() -> None:
    rollout = Rollout(deadline=30)
    pod = Pod("p", "u", NEW, ready=True, ready_since="2026-11-22T10:00:05Z")
    progress = Progress(NEW, OLD, taken={"n": Taken(100.0, {RESOURCE: 4}, True)})
    for reported, count, state in (
        ("2026-11-22T10:00:05Z", 4, "Progressing"),  # within the same second, so perhaps before
        ("2026-11-22T10:00:06Z", 3, "Progressing"),
        ("2026-11-22T10:00:06Z", 4, "Done"),
        ("", 4, "Progressing"),
    ):
        nodes = [Member("n", True, {RESOURCE: count}, pod, reported)]
        assert state == next_step(nodes, rollout, progress, 102.0, SETTLE).state
    unknown = [
        Member("n", True, {RESOURCE: 4}, replace(pod, ready_since=""), "2026-11-22T10:00:06Z")
    ]
    assert "Progressing" == next_step(unknown, rollout, progress, 102.0, SETTLE).state


def test_a_pod_that_leaves_is_waited_for() -> None:
    leaving = Member("n", True, {}, Pod("p", "u", OLD, ready=True, leaving=True))
    found = next_step([leaving], Rollout(), Progress(NEW, OLD), 100.0, SETTLE)
    assert ((), {"n"}) == (found.delete, {*found.progress.taken})


def test_without_nodes_nothing_is_known_of_a_revision() -> None:
    found = next_step([], Rollout(), Progress(NEW, OLD), 100.0, SETTLE)
    assert ("Done", OLD) == (found.state, found.progress.good)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"groups": [{"nodes": "n"}]}', '{"groups": [1]}', "null"),
        '{"groups": [{"nodes": ["n"], "since": "a", "before": {}, "well": true, "ready": 0}]}',
        '{"groups": [{"nodes": ["n"], "since": 0, "before": [], "well": true, "ready": 0}]}',
        *('{"generation": []}', '{"generation": 1e999}', "[" * 100_000),
    ],
)
def test_a_note_that_is_not_ours_says_nothing(text: str) -> None:
    found: Mapping[str, object] = {"metadata": {"annotations": {"deviceplugin.dev/rollout": text}}}
    assert Progress() == progress_note.read(found)


def test_of_a_note_with_other_types_nothing_ends_the_operator() -> None:
    taken = '{"nodes": ["n", 1, null], "since": 0, "before": {}, "well": true, "ready": 0}'
    text = '{"target": ["a"], "good": {"b": 1}, "restoring": "x", "resources": [[1]], "groups": ['
    text += f"{taken}]}}"
    metadata = {"annotations": {"deviceplugin.dev/rollout": text}}
    found = progress_note.read({"metadata": metadata})
    assert {str, bool, int, tuple, dict} == {type(one) for one in vars(found).values()}
    assert '["1", "None", "n"]' in progress_note.written(found)
    assert "Done" == next_step([], Rollout(), found, 100.0, SETTLE).state
