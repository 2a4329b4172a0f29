"""Which devices ResourceClaims hold through DRA, and the pods that have them by these."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, Protocol

from deviceplugin._attribution.podresources import ClaimedDevice, Hold, Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._attribution.protocol_state import Claimed

Place = tuple[str, str, str]
"""A driver, and the pool and the name of a device in its slices."""


class Claim(NamedTuple):
    """A ResourceClaim that is prepared on this node."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return what people call it."""
        return f"claim {self.namespace}/{self.name}"


class Unreadable(Protocol):
    """Devices of claims whose records cannot be read; see `UnreadableRecords`."""

    @property
    def state(self) -> tuple[bool, object]:
        """Whether there are some, and which."""

    def refresh(self) -> None:
        """Look whether there are such records."""

    def closed(self, key: Key, claim: Claim | None = None) -> str:
        """Return why nobody but ``claim`` may get the device; empty if one may."""

    def holder(self, key: Key) -> str:
        """Return which claim holds the device; empty if none is known."""

    def observe(self, holdings: Holdings) -> None:
        """Take account of what the kubelet says."""


class ClaimHolders:
    """The prepared claims and what they hold. Not thread-safe, except for reading ``by_device``."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[Claim, frozenset[Key]]] = {}
        self._shares: dict[str, frozenset[Key]] = {}
        self.shares: frozenset[Key] = frozenset()
        """The devices that claims hold as shares of others. It is replaced and never modified."""
        self.by_device: Mapping[Key, Claim] = MappingProxyType({})
        """The claim that holds each device. It is replaced and never modified."""
        self._unreadable: Unreadable | None = None

    def __bool__(self) -> bool:
        """Return whether a claim holds a device, or may hold one."""
        return bool(self.by_device) or (self._unreadable is not None and self._unreadable.state[0])

    @property
    def state(self) -> object:
        """What an observation can change."""
        return None if self._unreadable is None else self._unreadable.state

    def respect(self, unreadable: Unreadable) -> None:
        """Withhold what claims with unreadable records have, from now on."""
        self._unreadable = unreadable
        unreadable.refresh()

    def observe(self, holdings: Holdings) -> None:
        """Take account of what the kubelet says."""
        if self._unreadable is not None:
            self._unreadable.observe(holdings)

    def closed(self, key: Key, claim: Claim | None = None) -> str:
        """Return why nobody but ``claim`` may get the device; empty if one may."""
        if holder := self.by_device.get(key):
            return f"held by {holder}"
        return "" if self._unreadable is None else self._unreadable.closed(key, claim)

    def unreadable_holder(self, key: Key) -> str:
        """Return which claim without a readable record holds the device; empty if none does."""
        return "" if self._unreadable is None else self._unreadable.holder(key)

    def held(self, uid: str) -> frozenset[Key]:
        """Return what the claim ``uid`` holds; nothing if it is unknown."""
        return self._claims[uid][1] if uid in self._claims else frozenset()

    def way(self, key: Key) -> Claimed:
        """Return how a claim holds the device ``key``, if one does."""
        if key not in self.by_device:
            return ""
        return "share" if key in self.shares else "device"

    def record(
        self, claim: Claim, keys: frozenset[Key], shares: Collection[Key] = frozenset()
    ) -> None:
        """Record that ``claim`` holds ``keys``, and nothing else; of these, ``shares`` as such."""
        self._claims[claim.uid] = claim, keys
        self._shares[claim.uid] = keys.intersection(shares)
        self._index()

    def add(self, claim: Claim, keys: frozenset[Key], shares: frozenset[Key]) -> None:
        """Record that ``claim`` also holds ``keys``, and ``shares`` as such."""
        before = self._shares.get(claim.uid, frozenset())
        self.record(claim, self.held(claim.uid) | keys | shares, before | shares)

    def forget(self, uid: str) -> frozenset[Key]:
        """Forget the claim ``uid``; return the devices that no claim holds any more."""
        held = self.held(uid)
        self._claims.pop(uid, None)
        self._shares.pop(uid, None)
        self._index()
        return held - self.by_device.keys()

    def _index(self) -> None:
        # The first claim of a device stays its holder, should records have two.
        later_first = reversed(self._claims.values())
        found = {key: claim for claim, held in later_first for key in held}
        self.by_device = MappingProxyType(found)
        self.shares = frozenset().union(*self._shares.values())


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
