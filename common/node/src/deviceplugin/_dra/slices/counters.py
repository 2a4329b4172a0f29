"""What slices say of hardware that has parts: its counters, and what each device takes of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deviceplugin._attribution.ownership import OfferState
from deviceplugin._dra.naming import device_name, label
from deviceplugin._inventory.validation import natural_key
from deviceplugin.model import Counters, Device

Body = Mapping[str, Any]
"""A part of a slice, as JSON."""


def is_hidden(state: OfferState, body: Body, *, parts: bool, groups: bool) -> bool:
    """Return whether slices do not have a device that the ``body`` is of.

    A cluster without ``parts``, or their ``groups``, would give claims what cannot be made. And the
    scheduler deducts the counters of a part that it then does not take for its taint. So such a
    part must not be there, unless a claim has it: of that, the scheduler must know the counters.
    """
    part = state.device.part
    if part is None or not part.on_demand or state.claimed:
        return False
    return not parts or bool(part.groups and not groups) or "taints" in body


def consumption(device: Device, *, groups: bool) -> Body:
    """Return the field of ``device`` for what it takes of counters, with its ``groups`` or not."""
    part = device.part
    taken = _amounts(part.consumes) if part is not None else {}
    if part is None or not taken:
        return {}
    names = sorted({label(one) for one in part.groups}) if groups else []
    found = {"counterSet": device_name(part.of.name), "counters": taken}
    return {"consumesCounters": [{**found, **({"compatibilityGroups": names} if names else {})}]}


def counter_sets(states: Iterable[OfferState]) -> Sequence[Body]:
    """Return the counters that devices in slices, whose ``states`` these are, take something of.

    If any counter were exceeded, the scheduler would give out nothing of the pool. So there is at
    least as much of each as claims have, even if others took some of it, and a counter for all
    that a device takes, even if its hardware has such no more.
    """
    found: dict[str, Counters] = {}
    needed: dict[str, Counter[str]] = {}
    for state in states:
        part = state.device.part
        assert part is not None
        name = part.of.name
        if name not in found or state.device.health:  # what has vanished knows no news
            found[name] = part.of
        taken = part.consumes if state.claimed else dict.fromkeys(part.consumes, 0)
        needed.setdefault(name, Counter()).update(taken)
    return [
        {"name": device_name(name), "counters": _most(found[name].amounts, needed[name])}
        for name in sorted(found, key=natural_key)
    ]


def _most(there: Mapping[str, int], needed: Mapping[str, int]) -> Body:
    most = {name: max(there.get(name, 0), needed.get(name, 0)) for name in {**there, **needed}}
    return _amounts(most, least=0)


def _amounts(given: Mapping[str, int], *, least: int = 1) -> dict[str, Body]:
    return {
        label(name): {"value": str(given[name])} for name in sorted(given) if given[name] >= least
    }
