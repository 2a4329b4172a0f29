"""Two kubelets are compared: what they answer, and the state that they are in."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from deviceplugin_testing.simulator import KubeletCrashed
from kubelets.twin import Twin

CRASHED: Final = "the kubelet has crashed"
"""The answer of one that has died of a question."""


class DifferenceError(AssertionError):
    """The kubelets are not the same."""


class Comparison:
    """Asks both, and raises ``DifferenceError`` where they are not the same."""

    def __init__(self, twins: tuple[Twin, Twin]) -> None:
        self._twins = twins
        self.told: list[str] = []
        """What was done, and what was answered."""

    def both(self, what: str, act: Callable[[Twin], Any]) -> Any:
        """Do the same on both sides and return the answer: CRASHED if both have died of it."""
        self.told.append(what)
        said = []
        for twin in self._twins:
            try:
                said.append(twin.plain(act(twin)))
            except KubeletCrashed:
                said.append(CRASHED)
        self.told.append(f"    {said[0]}")
        self._same("answers", *said)
        return said[0]

    def of_states(self, plugins: Iterable[int]) -> None:
        """Compare what both know now, and what they have asked ``plugins``."""
        first, second = (twin.kubelet.state() for twin in self._twins)
        for what in first:
            self._same(what, first[what], second[what])
        self._same("checkpoints", *(twin.checkpoint() for twin in self._twins))
        pokes = [twin.kubelet.pokes() for twin in self._twins]
        if _unshared(first):
            self._same("pokes", *pokes)
        for number in plugins:
            self._same(f"calls of {number}", *(twin.calls(number) for twin in self._twins))

    def _same(self, what: str, first: object, second: object) -> None:
        if first != second:
            told = zip(self._twins, (first, second), strict=True)
            raise DifferenceError(
                "\n".join([f"{what} differ", *(f"{twin.name}: {said}" for twin, said in told)])
            )


def _unshared(state: dict[str, Any]) -> bool:
    """Whether no two pods have devices of the same name; of several pods any is poked."""
    owners: dict[str, str] = {}
    return all(
        owners.setdefault(id_, pod) == pod
        for pod, _, _, nodes in state["grants"]
        for ids in nodes.values()
        for id_ in ids
    )
