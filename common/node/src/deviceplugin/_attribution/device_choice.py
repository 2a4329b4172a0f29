"""Which devices a claim or a container gets, and why it does not."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin.errors import AllocationError


class Choice(NamedTuple):
    """``size`` of the devices ``among``, the first that are free: they are equal."""

    what: str
    """What the devices are shares of, for messages."""
    size: int
    among: Sequence[Key]


def choose(
    wanted: Collection[Key],
    choices: Sequence[Choice],
    closed: Callable[[Key], str],
    last: Collection[Key],
) -> list[Sequence[Key]]:
    """Return the devices for each of ``choices``: no device twice, and none that is ``wanted``.

    Args:
        wanted: Devices that are needed besides.
        choices: What is to be chosen.
        closed: Returns why nobody may get a device, or an empty string.
        last: Devices that are chosen only if there are too few others.

    Raises:
        AllocationError: One that is wanted is closed, or there are too few. The message says why.
    """
    refuse({key: why for key in wanted if (why := closed(key))})
    found: list[Sequence[Key]] = []
    gone = set(wanted)
    for what, size, among in choices:
        free = [key for key in among if key not in gone and not closed(key)]
        if len(free) < size:
            reasons = [f"{key[1]} is {why}" for key in among if (why := closed(key))]
            others = ", ".join(reasons) or "the claim has the others"
            raise AllocationError(
                f"{size} of the {len(among)} shares of {what} are needed, and {len(free)} are "
                f"free: {others}",
                resource=among[0][0] if among else "",
                device_ids=[key[1] for key in among],
            )
        found.append(sorted(free, key=lambda key: key in last)[:size])
        gone.update(found[-1])
    return found


def refuse(reasons: Mapping[Key, str], resource: str = "") -> None:
    """Raise AllocationError for ``reasons`` by device, unless there are none."""
    if reasons:
        raise AllocationError(
            ", ".join(f"{key[1]} is {reasons[key]}" for key in sorted(reasons)),
            resource=resource,
            device_ids=[device_id for _, device_id in sorted(reasons)],
        )
