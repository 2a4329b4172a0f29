"""The topology manager's arithmetic, from hints to an affinity and a verdict.

A set of NUMA nodes is an integer with one bit for each node.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final, NamedTuple

from deviceplugin_testing.simulator._host.config import TopologyPolicy


class Hint(NamedTuple):
    """A set of nodes that can satisfy a request."""

    nodes: int | None
    """None means any nodes."""
    preferred: bool


ProviderHints = Mapping[str, Sequence[Hint] | None]
"""The hints of one provider by resource. None means no preference; an empty list, impossible."""

_ANYWHERE: Final = Hint(None, preferred=True)
_NOWHERE: Final = Hint(None, preferred=False)


def mask(nodes: Iterable[int]) -> int:
    """Return the set of these nodes; negative numbers are ignored."""
    return sum(1 << node for node in set(nodes) if node >= 0)


def masks(nodes: Sequence[int]) -> Iterator[int]:
    """Yield every non-empty set of ``nodes``, small ones first."""
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            yield mask(chosen)


def affinity(
    policy: TopologyPolicy, providers: Sequence[ProviderHints], numa_nodes: Sequence[int]
) -> tuple[int | None, bool]:
    """Return the nodes to allocate on, None for any, and whether the pod is admitted."""
    if policy == "none":
        return None, True
    hints = [given for provider in providers for given in _spelt_out(provider)]
    everywhere = mask(numa_nodes)
    if policy == "single-numa-node":
        best = _merge([_single(given) for given in hints], everywhere)
        if best.nodes == everywhere:
            best = Hint(None, best.preferred)
    else:
        best = _merge(hints, everywhere)
    return best.nodes, policy == "best-effort" or best.preferred


def _spelt_out(provider: ProviderHints) -> list[Sequence[Hint]]:
    if not provider:
        return [[_ANYWHERE]]
    return [[_ANYWHERE] if given is None else given or [_NOWHERE] for given in provider.values()]


def _single(hints: Sequence[Hint]) -> list[Hint]:
    return [
        hint for hint in hints if hint.preferred and (hint.nodes is None or _size(hint.nodes) == 1)
    ]


def _merge(hints: Sequence[Sequence[Hint]], everywhere: int) -> Hint:
    target = _target_size(hints)
    best: Hint | None = None
    for choice in product(*hints):
        candidate = _intersection(choice, everywhere)
        if candidate.nodes and (best is None or _better(candidate, best, target)):
            best = candidate
    return best or Hint(everywhere, preferred=False)


def _intersection(choice: Sequence[Hint], everywhere: int) -> Hint:
    """Return the nodes common to all. It is preferred if all hints are, and have the same nodes."""
    given = [hint.nodes for hint in choice if hint.nodes is not None]
    nodes = everywhere
    for each in given:
        nodes &= each
    return Hint(nodes, all(hint.preferred for hint in choice) and len(set(given)) <= 1)


def _target_size(hints: Sequence[Sequence[Hint]]) -> int:
    """Return the fewest nodes that suffice for each single resource."""
    sizes = [[_size(hint.nodes) for hint in given if hint.nodes is not None] for given in hints]
    return max((min(each) for each in sizes if each), default=0)


def _better(candidate: Hint, best: Hint, target: int) -> bool:
    if candidate.preferred != best.preferred:
        return candidate.preferred
    if candidate.preferred:
        return _narrower(candidate, best)
    return _closer(candidate, best, target)


def _closer(candidate: Hint, best: Hint, target: int) -> bool:
    """Return whether ``candidate`` is nearer to ``target`` nodes; fewer are better than more."""
    new, old = _size(candidate.nodes), _size(best.nodes)
    if old > target or new == old:
        return _narrower(candidate, best)
    return old < new <= target


def _narrower(candidate: Hint, best: Hint) -> bool:
    return (_size(candidate.nodes), candidate.nodes or 0) < (_size(best.nodes), best.nodes or 0)


def _size(nodes: int | None) -> int:
    return (nodes or 0).bit_count()
