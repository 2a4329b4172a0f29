"""What the constraints of a claim say of its devices' attributes."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.rules.gates import LISTS
from deviceplugin_testing.simulator._control_plane.scheduler.pools import Offer

_SCALARS: Final[Mapping[str, str]] = {name.removesuffix("s"): name for name in LISTS}


class Values(NamedTuple):
    """The values of an attribute, in no order."""

    kind: str
    values: frozenset[Any]


def are_met(
    constraints: Iterable[Object], taken: Iterable[tuple[str, Offer]], *, lists: bool
) -> bool:
    """Return whether ``taken``, devices by request in the order of their allocation, can be one's.

    Without ``lists``, an attribute with several values is equal to none.
    """
    taken = [*taken]
    return all(_is_met(one, taken, lists=lists) for one in constraints)


def _is_met(constraint: Object, taken: list[tuple[str, Offer]], *, lists: bool) -> bool:
    wanted = constraint.get("requests", ())
    name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
    found = [
        (request.partition("/")[0], _values(offer, name, lists=lists))
        for request, offer in taken
        if not wanted or {request, request.partition("/")[0]} & {*wanted}
    ]
    if any(values is None for _, values in found):
        return False
    if "matchAttribute" in constraint:
        return _have_common([values for _, values in found if values])
    return _are_distinct((request, values) for request, values in found if values)


def _have_common(found: list[Values]) -> bool:
    common = frozenset.intersection(*(values for _, values in found)) if found else True
    return bool(common) and len({kind for kind, _ in found}) <= 1


def _are_distinct(found: Iterable[tuple[str, Values]]) -> bool:
    """Return whether no two have a value in common.

    Like Kubernetes, it compares with the last device of each request only.
    """
    last: dict[str, Values] = {}
    for request, own in found:
        if any(own.kind == other.kind and own.values & other.values for other in last.values()):
            return False
        last[request] = own
    return True


def _values(offer: Offer, name: str, *, lists: bool) -> Values | None:
    attributes = offer.device.get("attributes", {})
    domain, _, own = name.partition("/")
    attribute = attributes.get(name) or (
        attributes.get(own) if domain == offer.key.driver else None
    )
    for kind, given in (attribute or {}).items():
        if kind in _SCALARS:
            return Values(_SCALARS[kind], frozenset([given]))
        if lists:
            return Values(kind, frozenset(given))
    return None
