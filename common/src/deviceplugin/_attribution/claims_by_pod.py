"""Joining what claims hold with the pods that PodResources lists."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from deviceplugin._attribution.claim_holders import Claim
from deviceplugin._attribution.podresources import ClaimedDevice, Hold, Holdings
from deviceplugin._attribution.poll_schedule import Key

Place = tuple[str, str, str]
"""A driver, and the pool and the name of a device in its slices."""


def with_claims(
    holdings: Holdings, claims: Mapping[Key, Claim], places: Mapping[Place, Collection[Key]]
) -> Holdings:
    """Return ``holdings`` in which containers also hold what they have through claims.

    A device that a claim holds, but no listed container has, is held by a container without a name:
    its pod is about to start or has just ended. Where it cannot be known what pods hold, nothing is
    added.

    Args:
        holdings: What PodResources says.
        claims: The claims that hold devices, by device.
        places: The devices of prepared claims; several where claims have shares of one.
    """
    if holdings.holds is None or not claims:
        return holdings
    found = {
        Hold(*key, one.namespace, one.pod, one.container, one.claim)
        for one in holdings.claimed
        for key in _held_by(one, places.get((one.driver, one.pool, one.name), ()), claims)
    }
    listed = {(hold.resource, hold.device) for hold in found}
    found |= {
        Hold(*key, claim.namespace, "", "", claim.name)
        for key, claim in claims.items()
        if key not in listed
    }
    return replace(holdings, holds=holdings.holds | found)


def _held_by(
    one: ClaimedDevice, keys: Collection[Key], claims: Mapping[Key, Claim]
) -> Collection[Key]:
    """Return those of ``keys`` that ``one`` means: of a shared device, the shares of its claim."""
    if len(keys) == 1:
        return keys
    name = one.namespace, one.claim
    return [key for key in keys if key in claims and claims[key][:2] == name]
