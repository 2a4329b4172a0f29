"""Which devices of the inventory a claim gets for the names that it is allocated."""

from collections.abc import Collection, Mapping, Sequence

from deviceplugin._attribution.claim_holders import UnreadableRecords
from deviceplugin._attribution.hardware import Given
from deviceplugin._attribution.holders import Choice
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.claims.device_lookup import Candidates, Located
from deviceplugin._dra.claims.record import Place, Record


def book(
    ownership: Ownership, claim: Claim, found: Sequence[Candidates], before: Record | None
) -> Sequence[Located]:
    """Count devices as held by ``claim``, and return them, in the order of ``found``.

    For a share it has as many ids as that consumes: those of ``before``, if it had the share then.
    What it had before it keeps. Devices that it has as an administrator are not counted.

    Raises:
        AllocationError: Somebody else holds them. Nothing has changed.
    """
    had = {one.key: one.place for one in before.devices if not one.admin} if before else {}
    ranked = [(one, _ranked(one, had)) for one in found]
    choices = [Choice(one.shared, one.count, keys) for one, keys in ranked if _is_choice(one)]
    single = {one.keys[0] for one in found if not (one.shared or one.result.admin)}
    kept = had.keys() - {key for each in choices for key in each.among}
    chosen = iter(ownership.prepare(claim, single | kept, choices=choices))
    return [
        located
        for one, keys in ranked
        for located in one.located(next(chosen) if _is_choice(one) else keys[: one.count])
    ]


def restore(
    ownership: Ownership, records: Collection[Record], unreadable: UnreadableRecords
) -> None:
    """Count what ``records`` have as held by their claims, and ``unreadable`` ones as unknown."""
    held = {one.claim: one.held for one in records}
    shares = {key for one in records for key in one.shares}
    given = {key: Given(one.paths, one.held) for one in records for key in one.held}
    ownership.restore(held, shares, unreadable=unreadable, records=given.get)


def _is_choice(one: Candidates) -> bool:
    return bool(one.shared) and not one.result.admin


def _ranked(one: Candidates, had: Mapping[Key, Place]) -> list[Key]:
    """Return the keys of ``one``: first those that it had, last those that others of it had."""
    result = one.result
    place = Place(result.request, result.pool, result.device, result.share)
    return sorted(one.keys, key=lambda key: 0 if had.get(key) == place else 1 + (key in had))
