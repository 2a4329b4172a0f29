"""Devices that are parts of hardware, as plugins report them, and what more could be made of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from deviceplugin._inventory.divided import Piece, Profiles, divide, profile_of

if TYPE_CHECKING:
    from deviceplugin.tools.devices._inventory import NodeDevice

_AMOUNTS: Final = ("amounts", "consumes")


def part_of_page(part: Any) -> Mapping[str, Any]:
    """Return the ``part`` of a device of ``/devices``; errors of builtin classes if it is none."""
    amounts, consumes = ({str(k): int(n) for k, n in part[one].items()} for one in _AMOUNTS)
    groups = [str(one) for one in part.get("groups", ())]
    named = {"of": str(part["of"]), "on_demand": bool(part["on_demand"])}
    return {**named, "amounts": amounts, "consumes": consumes, "groups": groups}


def divided(devices: "Iterable[NodeDevice]") -> Iterator[tuple[str, str, Profiles]]:
    """Yield resource and name of each piece of hardware that has parts, with its profiles.

    It marks which of ``devices`` are blocked, so it comes after all sources.
    """
    hardware: dict[tuple[str, str], list[NodeDevice]] = {}
    for one in devices:
        if one.part:
            hardware.setdefault((one.resource, one.part["of"]), []).append(one)
    for (resource, name), pieces in hardware.items():
        found = divide(pieces[0].part["amounts"], map(_piece, pieces))
        blocked = {*found.blocked}
        for one in pieces:
            one.blocked = one.id in blocked
        yield resource, name, found.profiles


def _piece(one: "NodeDevice") -> Piece:
    profile = profile_of(one.attributes, on_demand=one.part["on_demand"])
    is_held, is_usable = bool(one.holders) or one.made, one.healthy is not False
    return Piece(one.id, profile, one.part["consumes"], one.part["groups"], is_held, is_usable)
