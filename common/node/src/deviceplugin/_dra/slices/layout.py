"""Which device is in which slice of its pool."""

from collections.abc import Mapping, Sequence
from typing import Final

PER_SLICE: Final = 64
"""Devices in a slice: what the API server accepts of devices that may have taints."""
_SPARE: Final = 1
"""Slices more than are needed before the devices are laid out anew."""


def lay_out(names: Sequence[str], have: Mapping[int, Sequence[str]], count: int) -> list[list[str]]:
    """Return the names of the devices of each slice, in the order of ``names``.

    A device stays in its slice, so a change of one device is a change of one slice. Others fill
    slices that are missing, and then those with room. There is always one slice at least.

    Args:
        names: The devices, in order.
        have: The devices of each slice that exists, by its index.
        count: How many slices there should be now; one of them may be missing.
    """
    needed = max(1, -(-len(names) // PER_SLICE))
    most = max([min(count, needed + _SPARE), *(index + 1 for index in have)])
    slots: list[list[str]] = [[] for _ in range(most)]
    others = dict.fromkeys(names)
    for index in sorted(have):
        for name in have[index]:
            if name in others and len(slots[index]) < PER_SLICE:
                slots[index].append(name)
                del others[name]
    if len(others) == len(names) or len(slots) > needed + _SPARE:
        return [list(names[PER_SLICE * i : PER_SLICE * (i + 1)]) for i in range(needed)]
    rest = list(others)
    for index in sorted(range(len(slots)), key=lambda index: index in have):
        room = PER_SLICE - len(slots[index])
        slots[index] += rest[:room]
        del rest[:room]
    slots += [rest[i : i + PER_SLICE] for i in range(0, len(rest), PER_SLICE)]
    while not slots[-1] and len(slots) > needed and len(slots) - 1 not in have:
        slots.pop()  # `count` was not true
    place = {name: position for position, name in enumerate(names)}
    return [sorted(slot, key=place.__getitem__) for slot in slots]
