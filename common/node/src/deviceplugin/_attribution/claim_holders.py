"""Which devices ResourceClaims hold through DRA, and the pods that have them by these."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from deviceplugin._attribution.handover import Claimed
from deviceplugin._attribution.podresources import ClaimedDevice, Hold, Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

Place = tuple[str, str, str]
"""A driver, and the pool and the name of a device in its slices."""
Name = tuple[str, str]
"""The namespace and the name of a claim."""
ClaimedPlace = tuple[Place, Name]
"""A device in a slice, and a claim that has it, or a share of it."""

_UNKNOWN: Final = "not known yet: which claims have it, because the record of one cannot be read"
_NEEDED: Final = 2
"""Complete lists without a device until it is free."""


class Claim(NamedTuple):
    """A ResourceClaim that is prepared on this node."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


@dataclass(slots=True)
class UnreadableRecords:
    """Devices of claims whose records cannot be read, as far as PodResources names them.

    Reading is thread-safe; ``observe`` is for one thread at a time.
    """

    driver: str
    files: Callable[[], Collection[Path]]
    """Returns the records that cannot be read."""
    recorded: Callable[[], Collection[ClaimedPlace]]
    """Returns what claims have according to the records that can."""
    places_of: Callable[[Key], Iterable[Place]]
    """Returns the names by which a claim may have a device. Shares of one have a name in common."""
    _named: Mapping[ClaimedPlace, int] = field(default_factory=dict)
    """What containers have, and in how many complete lists since then it was missing.

    It is replaced and never modified."""
    _is_needed: bool = True
    _known: bool = False
    _seen: frozenset[Path] = frozenset()
    """The records that could not be read so far."""
    _pods: object = None
    """Those of the last list: what follows until the next one is not news about claims."""
    _problems: Problems = field(default_factory=lambda: Problems(log))

    def __bool__(self) -> bool:
        """Return whether any device may be held by such a claim."""
        return self._is_needed and (bool(self._named) or not self._known)

    @property
    def state(self) -> tuple[bool, frozenset[ClaimedPlace]]:
        """What an observation can change."""
        return bool(self), frozenset(self._named)

    def refresh(self) -> None:
        """Look whether there are records that cannot be read."""
        try:
            found = frozenset(self.files())
        except OSError:
            self._is_needed = True
            return
        if found - self._seen:  # the last list was not asked for them
            self._known = False
        self._seen, self._is_needed = found, bool(found)

    def closed(self, key: Key, claim: Claim | None = None) -> str:
        """Return why nobody but ``claim`` may get the device; empty if one may."""
        if not self:
            return ""
        names = self._names(key)
        if not names:
            return "" if self._known else _UNKNOWN
        others = [name for name in names if claim is None or name != claim[:2]]
        return _words(others[0]) if others else ""

    def holder(self, key: Key) -> str:
        """Return which claim holds the device, or may; empty if none is known."""
        names = self._names(key)
        return _words(names[0]) if names else ""

    def of(self, claim: Claim) -> Sequence[str]:
        """Return the names in slices of the devices that the claim has without a record."""
        return sorted(device for (_, _, device), name in self._named if name == claim[:2])

    def _names(self, key: Key) -> Sequence[Name]:
        """Return the claims that have the device, or a share of the same one: which is unknown."""
        if not self._named:
            return ()
        places = set(self.places_of(key))
        return sorted(name for place, name in self._named if place in places)

    def observe(self, holdings: Holdings) -> None:
        """Take account of what the kubelet says."""
        self.refresh()
        if not self._is_needed:
            self._named, self._known = {}, False
            return
        found = {
            ((one.driver, one.pool, one.name), (one.namespace, one.claim)): 0
            for one in holdings.claimed
            if one.driver == self.driver
        }
        # A list without pods says nothing of claims.
        complete = holdings.complete and bool(holdings.pods)
        is_news = complete and holdings.pods is not self._pods
        self._pods = holdings.pods
        for one, missing in self._named.items():
            if one not in found and missing + is_news < _NEEDED:
                found[one] = missing + is_news
        recorded = self.recorded()
        self._named = {one: missing for one, missing in found.items() if one not in recorded}
        self._known = self._known or complete
        self._report()

    def _report(self) -> None:
        self._problems.say_all(
            "devices of a claim without a record withheld",
            [
                f"{device} of pool {pool}: {_words(name)}"
                for (_, pool, device), name in sorted(self._named)
            ],
        )


def _words(name: Name) -> str:
    return f"held by claim {'/'.join(name)}, whose record cannot be read"


class ClaimHolders:
    """The prepared claims and what they hold. Not thread-safe, except for reading ``by_device``."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[Claim, frozenset[Key]]] = {}
        self._shares: dict[str, frozenset[Key]] = {}
        self.shares: frozenset[Key] = frozenset()
        """The devices that claims hold as shares of others. It is replaced and never modified."""
        self.by_device: Mapping[Key, Claim] = MappingProxyType({})
        """The claim that holds each device. It is replaced and never modified."""
        self._unreadable: UnreadableRecords | None = None

    def __bool__(self) -> bool:
        """Return whether a claim holds a device, or may hold one."""
        return bool(self.by_device) or (self._unreadable is not None and bool(self._unreadable))

    @property
    def state(self) -> object:
        return None if self._unreadable is None else self._unreadable.state

    def respect(self, unreadable: UnreadableRecords) -> None:
        """Withhold what claims with unreadable records have, from now on."""
        self._unreadable = unreadable
        unreadable.refresh()

    def observe(self, holdings: Holdings) -> None:
        if self._unreadable is not None:
            self._unreadable.observe(holdings)

    def closed(self, key: Key, claim: Claim | None = None) -> str:
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
    its pod is about to start or has just ended. A place has several devices if they are shares.
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
    """Return those of ``keys`` that the claim of ``one`` holds: none by admin access."""
    name = one.namespace, one.claim
    return [key for key in keys if key in claims and claims[key][:2] == name]
