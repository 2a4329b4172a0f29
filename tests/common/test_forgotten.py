"""What a kubelet has forgotten that lost its checkpoint, and what it has not."""

from pathlib import Path

import pytest

from deviceplugin._attribution.forgotten import Forgotten
from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, HoldingsView, Key

R = "x.io/dev"
OLD, NEW = (1, 1, 1), (2, 2, 2)


def hold(device: str, pod: str) -> Hold:
    return Hold(R, device, "default", pod, "main")


A, B = hold("a", "first"), hold("b", "second")
BOTH = frozenset({A.owner, B.owner})


class Node:
    """Lists of two kubelets, one after the other, and their checkpoint."""

    def __init__(self, socket: Path) -> None:
        self.recorded: set[Key] = set()
        self._socket = socket
        self._socket.touch()
        self.forgotten = Forgotten(socket, lambda key: key in self.recorded)
        self._view = HoldingsView(AttributionTiming.of(0.0))

    def lists(self, *holds: Hold, kubelet: tuple[int, int, int] = OLD) -> set[Hold]:
        """The holds of both pods in the view, if the kubelet lists these."""
        listed = Holdings(frozenset(holds), BOTH)
        self._view = self.forgotten.after_list(self._view, listed, kubelet, [R], 0.0)
        return set(self._view.holdings.holds or ())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "kubelet.sock")


def test_what_a_lost_checkpoint_had_is_remembered(node: Node) -> None:
    node.recorded = {(R, "a")}
    node.lists(A)
    node.recorded = set()
    node.forgotten.watched(R)
    assert {"a"} == node.forgotten.held(R)
    assert {A} == node.lists(kubelet=NEW)
    assert {"a"} == node.forgotten.of(R)
    assert {A} == node.lists(kubelet=NEW)


@pytest.mark.parametrize(
    ("watched_again", "expected"),
    [(False, set()), (True, {A})],
    ids=["collected since the new kubelet restored it", "lost by the new kubelet"],
)
def test_what_is_not_recorded_any_more_after_a_restart_was_collected_or_lost(
    node: Node, expected: set[Hold], *, watched_again: bool
) -> None:
    """Kubelets before 1.34 list a pod that ended meanwhile, until somebody deletes it."""
    node.recorded = {(R, "a")}
    node.lists(A)
    node.forgotten.watched(R)
    node.recorded = set()
    if watched_again:
        node.forgotten.watched(R)
    assert expected == node.lists(kubelet=NEW)


def test_a_pod_that_ended_before_the_restart_has_nothing(node: Node) -> None:
    node.recorded = {(R, "a"), (R, "b")}
    node.lists(A, B)
    found = node.forgotten.among(Holdings(frozenset({B}), BOTH), asked=BOTH)
    assert frozenset({B}) == found.holds
    node.recorded = set()
    assert {B} == node.lists(kubelet=NEW)


def test_without_a_checkpoint_nothing_is_known_to_be_lost(node: Node) -> None:
    node.lists(A)
    assert set() == node.lists(kubelet=NEW)


def test_what_the_pod_holds_now_counts(node: Node) -> None:
    node.recorded = {(R, "a")}
    node.lists(A)
    node.recorded = set()
    again = hold("b", "first")
    assert {again} == node.lists(again, kubelet=NEW)
