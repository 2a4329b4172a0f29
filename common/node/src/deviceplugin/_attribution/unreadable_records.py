"""Devices of claims whose records cannot be read, as far as the kubelet names them.

Such a record does not say which devices it was about. PodResources lists the devices that
containers have through claims, also those of claims without a record.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deviceplugin._attribution.claim_holders import Claim, Place
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_UNKNOWN: Final = "not known yet: which claims have it, because the record of one cannot be read"
_NEEDED: Final = 2
"""Complete lists without a device until it is free."""


Name = tuple[str, str]
"""The namespace and the name of a claim."""
ClaimedPlace = tuple[Place, Name]
"""A device in a slice, and a claim that has it, or a share of it."""


@dataclass(slots=True)
class UnreadableRecords:
    """Says who may hold devices without a record.

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
