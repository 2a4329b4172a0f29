"""Finding devices for the claims of a pod: the first that fit, one after the other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.rules.claims import requests_of
from deviceplugin_testing.simulator._control_plane.rules.gates import Gates
from deviceplugin_testing.simulator._control_plane.scheduler.constraints import are_met
from deviceplugin_testing.simulator._control_plane.scheduler.counters import (
    Groups,
    Ledger,
    groups_of,
)
from deviceplugin_testing.simulator._control_plane.scheduler.pools import (
    Amounts,
    DeviceKey,
    Offer,
    Pools,
    consumed,
    total,
    untolerated,
)
from deviceplugin_testing.simulator._control_plane.selectors import Candidate, parse_selector

_MOST_DEVICES: Final = 32
"""Of a claim."""
_MOST_TRIES: Final = 10_000
"""Kubernetes gives up after 10 s, when it has tried more."""


class AllocationError(Exception):
    """Claims cannot be allocated, whichever devices are free."""


class Wanted(NamedTuple):
    """What a request of a claim, or a sub-request of it, asks for."""

    claim: int
    request: str
    spec: Object
    number: int
    """How many devices."""
    all_of: list[Offer] | None
    """Which devices, if all are asked for."""


class Taken(NamedTuple):
    """A device for a request."""

    wanted: Wanted
    offer: Offer
    consumed: Amounts | None
    """What it consumes of a shared device; None of one that nobody shares."""


class InUse(NamedTuple):
    """What claims have already."""

    devices: frozenset[DeviceKey]
    """Devices that nobody else can have."""
    consumed: Mapping[DeviceKey, Mapping[str, Fraction]]
    """What is consumed of shared devices, by capacity."""
    groups: Mapping[DeviceKey, Groups]
    """The compatibility groups of all these devices as they were when allocated."""


class Allocator:
    """Takes devices of one node for ``claims`` of one pod.

    ``gates`` say which features are on. ``new_share`` returns a new id. It tries all devices for
    all requests in turn, as Kubernetes 1.36 does, and like it keeps the counters of a device that
    is not taken for its taints or a constraint, so that devices after it may get none.
    """

    def __init__(
        self,
        pools: Pools,
        used: InUse,
        classes: Mapping[str, Object],
        claims: Sequence[Object],
        *,
        new_share: Callable[[], str],
        gates: Gates = Gates(),  # noqa: B008 - immutable
    ) -> None:
        self._pools = pools
        self._used = used
        self._classes = classes
        self._new_share = new_share
        self._gates = gates
        self._claims = claims
        self._taken: list[Taken] = []
        self._tries = 0
        self._ledger = Ledger(pools, used.groups, groups=gates.groups)
        self._matching: dict[tuple[int, str, DeviceKey], bool] = {}

    def allocate(self, node: str) -> list[Object] | None:
        """Return the allocations, or None if there are not enough devices. Call it once.

        Raises:
            AllocationError: They cannot be allocated even if all devices were free.
            SelectorError: A selector cannot be evaluated.
        """
        requests = [
            [self._wanted(index, name, spec) for name, spec in _alternatives(request)]
            for index, claim in enumerate(self._claims)
            for request in requests_of(claim["spec"])
        ]
        if not self._satisfy(requests):
            if "invalid" in self._pools.problems:
                raise AllocationError("invalid resource pools were encountered")
            return None
        return [self._allocation(index, claim, node) for index, claim in enumerate(self._claims)]

    def _wanted(self, claim: int, name: str, spec: Object) -> Wanted:
        if spec["deviceClassName"] not in self._classes:
            raise AllocationError(f"device class {spec['deviceClassName']} does not exist")
        wanted = Wanted(claim, name, spec, spec.get("count", 0), None)
        if spec["allocationMode"] != "All":
            return wanted
        for problem in self._pools.problems:
            raise AllocationError(f"asks for all devices, but there are {problem} pools")
        matching = [one for one in self._pools.offers if self._matches(one, wanted)]
        every = [one for one in matching if self._amounts(one, spec) is not None]
        return wanted._replace(number=len(every), all_of=every)

    # The search

    def _satisfy(self, requests: list[list[Wanted]]) -> bool:
        """Take devices for all ``requests``; return whether that is possible."""
        return not requests or any(
            self._take_all(wanted, requests[1:], 0, 0) for wanted in requests[0]
        )

    def _take_all(self, wanted: Wanted, rest: list[list[Wanted]], have: int, start: int) -> bool:
        """Take what ``wanted`` still needs, from the offer ``start`` on, and then for the rest."""
        if have == wanted.number:
            return wanted.all_of != [] and self._satisfy(rest)
        if len(self._of(wanted.claim)) + wanted.number - have > _MOST_DEVICES:
            return False
        offers = self._pools.offers if wanted.all_of is None else wanted.all_of[: start + 1]
        for place, offer in enumerate(offers[start:], start):
            if self._take(wanted, offer):
                if self._take_all(wanted, rest, have + 1, place + 1):
                    return True
                self._give_back()
        return False

    def _take(self, wanted: Wanted, offer: Offer) -> bool:
        """Take a device for a request, if it can have it; return whether it can."""
        self._tries += 1
        if self._tries > _MOST_TRIES:
            raise AllocationError("timed out trying to allocate devices")
        if self._is_in_use(wanted, offer.key) or not self._matches(offer, wanted):
            return False
        amounts = self._amounts(offer, wanted.spec)
        if amounts is None or not self._has_counters(offer):
            return False
        if untolerated(offer.device.get("taints", ()), wanted.spec.get("tolerations", ())):
            return False
        taken = Taken(wanted, offer, amounts if self._is_shared(offer) else None)
        if not self._agree(taken):
            if wanted.all_of is not None:
                raise AllocationError("asks for all devices, but a constraint is not satisfied")
            return False
        self._taken.append(taken)
        return True

    def _give_back(self) -> None:
        taken = self._taken.pop()
        if taken.consumed is None and taken.offer.device.get("consumesCounters"):
            self._ledger.give_back(taken.offer)

    def _of(self, claim: int) -> list[Taken]:
        return [one for one in self._taken if one.wanted.claim == claim]

    def _is_shared(self, offer: Offer) -> bool:
        return self._gates.shares and bool(offer.device.get("allowMultipleAllocations"))

    def _is_in_use(self, wanted: Wanted, key: DeviceKey) -> bool:
        claims = {
            one.wanted.claim for one in self._taken if one.offer.key == key and one.consumed is None
        }
        if wanted.spec.get("adminAccess"):
            return wanted.claim in claims
        return bool(claims) or key in self._used.devices

    def _amounts(self, offer: Offer, spec: Object) -> Amounts | None:
        """Return what is consumed of the capacity of a device, or None if it has not enough."""
        if not self._gates.shares:
            return {}
        asked = spec.get("capacity", {}).get("requests", {})
        return consumed(offer.device, asked, self._consumed_of(offer.key))

    def _consumed_of(self, key: DeviceKey) -> Mapping[str, Fraction]:
        """Return what is consumed of a shared device, by claims and in this search."""
        own = total(one.consumed for one in self._taken if one.offer.key == key and one.consumed)
        before = self._used.consumed.get(key, {})
        return {name: before.get(name, Fraction()) + own.get(name, 0) for name in {**before, **own}}

    def _has_counters(self, offer: Offer) -> bool:
        """Return whether there are counters for the device, and take them.

        Of a shared device, only the first share takes some.
        """
        if not offer.device.get("consumesCounters"):
            return True
        has_share = self._used.consumed.get(offer.key) or any(
            one.offer.key == offer.key for one in self._taken
        )
        return bool(self._is_shared(offer) and has_share) or self._ledger.take(offer)

    def _agree(self, taken: Taken) -> bool:
        constraints = self._claims[taken.wanted.claim]["spec"]["devices"].get("constraints", ())
        several = [*self._of(taken.wanted.claim), taken]
        pairs = [(one.wanted.request, one.offer) for one in several]
        return are_met(constraints, pairs, lists=self._gates.lists)

    def _matches(self, offer: Offer, wanted: Wanted) -> bool:
        """Return whether selectors choose the device; they are evaluated once for each."""
        place = (wanted.claim, wanted.request, offer.key)
        if place not in self._matching:
            of_class = self._classes[wanted.spec["deviceClassName"]]["spec"].get("selectors", [])
            candidate = Candidate(offer.key.driver, offer.device)
            self._matching[place] = all(
                parse_selector(one["cel"]["expression"])(candidate)
                for one in [*of_class, *wanted.spec.get("selectors", [])]
            )
        return self._matching[place]

    # The result

    def _allocation(self, index: int, claim: Object, node: str) -> Object:
        taken = self._of(index)
        config = [*self._class_configs(taken), *_claim_configs(claim)]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        devices: Object = {"results": [self._result(one) for one in taken]}
        if config:
            devices["config"] = config
        return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]}}

    def _result(self, taken: Taken) -> Object:
        found: dict[str, Any] = {"request": taken.wanted.request, **taken.offer.key._asdict()}
        for field in ("adminAccess", "tolerations"):
            if taken.wanted.spec.get(field):
                found[field] = taken.wanted.spec[field]
        if taken.consumed is not None:
            found["shareID"] = self._new_share()
            found |= {"consumedCapacity": taken.consumed} if taken.consumed else {}
        groups = {name: one for name, one in groups_of(taken.offer.device).items() if one}
        return found | ({"compatibilityGroups": groups} if groups else {})

    def _class_configs(self, taken: list[Taken]) -> Iterator[Object]:
        wanted = {one.wanted.request: one.wanted.spec["deviceClassName"] for one in taken}
        for request, name in wanted.items():
            for config in self._classes[name]["spec"].get("config", []):
                yield {"source": "FromClass", "requests": [request], **config}


def _alternatives(request: Object) -> Iterator[tuple[str, Object]]:
    if "exactly" in request:
        yield request["name"], request["exactly"]
    for sub in request.get("firstAvailable", ()):
        yield f"{request['name']}/{sub['name']}", sub


def _claim_configs(claim: Object) -> Iterator[Object]:
    for config in claim["spec"]["devices"].get("config", []):
        yield {"source": "FromClaim", **config}
