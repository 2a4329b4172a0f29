"""Lists of entries. One that is wrong reserves functions, as far as it can be read."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Place
from deviceplugin_rdma.entries import ENTRY, SELECTOR, SHARED, Entry, Selector


def _are_different(found: Sequence[tuple[Place, Entry]]) -> None:
    seen: set[tuple[str, str]] = set()
    for place, entry in found:
        if (entry.prefix, entry.name) in seen:
            place.fault(f"resourceName: {entry.name!r} is there already: use one entry for it")
        seen.add((entry.prefix, entry.name))


def _reserving(place: Place, problem: str, *, together: bool = False) -> Entry:
    """Return what stands for a wrong entry, with each selector as far as it can be read."""
    keys = (
        {key.lower(): one for key, one in place.keys().items()} if place.kind == "mapping" else {}
    )
    name, given = keys.get("resourcename"), keys.get("selectors")
    places = [] if given is None else given.items() if given.kind == "list" else [given]
    found = [cfg.readable(one, SELECTOR) or _partly(one) for one in places]
    shown = f"{cfg.bounded(name.shown)}: " if name else ""
    selectors = tuple(one for one in found if one != Selector())
    return Entry(shown, selectors=selectors, together=together, problem=shown + problem)


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
