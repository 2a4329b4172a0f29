"""Lists of entries. One that is wrong reserves functions, as far as it can be read."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Place
from deviceplugin_rdma.entries import AUXILIARY, ENTRY, KIND, SELECTOR, SHARED, Entry, Selector


def _are_different(found: Sequence[tuple[Place, Entry]]) -> None:
    seen: set[tuple[str, str]] = set()
    for place, entry in found:
        if (entry.prefix, entry.name) in seen:
            place.fault(f"resourceName: {entry.name!r} is there already: use one entry for it")
        seen.add((entry.prefix, entry.name))


def _reserving(place: Place, problem: str, *, together: bool = False) -> Entry:
    """Return what stands for a wrong entry, with each selector as far as it can be read.

    What stands beside the selectors, where it does not belong, is one if there are no others.
    """
    given = place.keys() if place.kind == "mapping" else {}
    keys = {key.lower(): one for key, one in given.items()}
    name, inner = keys.get("resourcename"), keys.get("selectors", place)
    places = inner.items() if inner.kind == "list" else [inner]
    found = [cfg.readable(one, SELECTOR) or _partly(one) for one in places]
    selectors = tuple(each for one in found for each in _readings(one) if each != Selector())
    kinds = {
        cfg.readable(keys.get("devicetype"), KIND),
        *(AUXILIARY for one in found if one.aux_types),
    }
    kinds.discard(None)
    shown = cfg.bounded(name.shown) if name else ""
    return Entry(
        f"{shown} (invalid entry)",
        selectors=selectors,
        together=together,
        kind=kinds.pop() or "" if len(kinds) == 1 else "",
        problem=f"{shown}: {problem}" if shown else problem,
    )


def _readings(one: Selector) -> tuple[Selector, ...]:
    """Return what a selector can mean: one of both keys that exclude each other may be wrong."""
    both = one.vdpa and one.is_rdma
    return (replace(one, is_rdma=False), replace(one, vdpa="")) if both else (one,)


def _partly(place: Place) -> Selector:
    """Return what can be read of a wrong selector, which matches more without the rest."""
    given = place.keys() if place.kind == "mapping" else {}
    one_by_one = [
        cfg.readable(Place(one.faults, replace(place.node, pairs={key: one.node})), SELECTOR)
        for key, one in given.items()
    ]
    found = {key: value for one in one_by_one if one for key, value in vars(one).items() if value}
    return Selector(**found)


ENTRIES: Final = cfg.list_of(ENTRY, nullable=True, together=_are_different, instead=_reserving)
"""``resourceList``."""
SHARED_ENTRIES: Final = cfg.list_of(
    SHARED, nullable=True, together=_are_different, instead=partial(_reserving, together=True)
)
"""``configList``."""
