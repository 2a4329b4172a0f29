"""Finding devices for the requests of a claim: the first that fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.rules.claims import requests_of
from deviceplugin_testing.simulator._control_plane.rules.gates import Gates
from deviceplugin_testing.simulator._control_plane.scheduler.constraints import are_met
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


class AllocationError(Exception):
    """A claim cannot be allocated, whichever devices are free."""


class Taken(NamedTuple):
    """A device for a request."""

    request: str
    offer: Offer
    wanted: Object
    consumed: Amounts | None
    """What it consumes of a shared device; None of one that nobody shares."""


class InUse(NamedTuple):
    """What claims have already."""

    devices: frozenset[DeviceKey]
    """Devices that nobody else can have."""
    consumed: Mapping[DeviceKey, Mapping[str, Fraction]]
    """What is consumed of shared devices, by capacity."""


class ClaimAllocator:
    """Takes devices of one node for one claim after the other.

    ``gates`` say which features are on. ``new_share`` returns a new id.
    """

    def __init__(
        self,
        pools: Pools,
        used: InUse,
        classes: Mapping[str, Object],
        *,
        new_share: Callable[[], str],
        gates: Gates = Gates(),  # noqa: B008 - immutable
    ) -> None:
        self._pools = pools
        self._used = set(used.devices)
        self._consumed = dict(used.consumed)
        self._classes = classes
        self._new_share = new_share
        self._constraints: Sequence[Object] = ()
        self._gates = gates

    def allocate(self, claim: Object, node: str) -> Object | None:
        """Return the allocation for ``claim``, whose devices then are used, or None.

        Raises:
            AllocationError: It cannot be allocated even if all devices were free.
            SelectorError: A selector cannot be evaluated.
        """
        self._constraints = claim["spec"]["devices"].get("constraints", ())
        taken = self._take(requests_of(claim["spec"]), [])
        if taken is None:
            return None
        counted = [one for one in taken if not one.wanted.get("adminAccess")]
        self._used |= {one.offer.key for one in counted if one.consumed is None}
        self._consumed |= {one.offer.key: self._in_use(one.offer.key, counted) for one in counted}
        config = [*self._class_configs(taken), *_claim_configs(claim)]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        devices: Object = {"results": [self._result(one) for one in taken]}
        if config:
            devices["config"] = config
        return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]}}

    def _take(self, requests: list[Object], mine: list[Taken]) -> list[Taken] | None:
        """Return devices for all requests, or None; ``mine`` are those of earlier requests."""
        if not requests:
            return []
        for name, wanted in _alternatives(requests[0]):
            for found in self._choices(name, wanted, mine):
                rest = self._take(requests[1:], [*mine, *found])
                if rest is not None:
                    return [*found, *rest]
        return None

    def _choices(self, name: str, wanted: Object, mine: list[Taken]) -> Iterator[list[Taken]]:
        if wanted["allocationMode"] == "All":
            if self._pools.incomplete:
                raise AllocationError("asks for all devices, but there are incomplete pools")
            matching = [offer for offer in self._pools.offers if self._matches(offer, wanted)]
            taken = [self._taken(name, one, wanted, mine) for one in matching]
            found = [one for one in taken if one is not None]
            if found and len(found) == len(matching) and self._agree([*mine, *found]):
                yield found
            return
        if self._constraints:
            yield from self._agreeing(name, wanted, mine, 0, wanted["count"])
            return
        found = []
        for offer in self._pools.offers:
            # A selector is not evaluated for a device that is in use, or after the last needed one.
            one = self._taken(name, offer, wanted, mine)
            if one is not None and self._matches(offer, wanted):
                found = [*found, one][-wanted["count"] :]
                if len(found) == wanted["count"]:
                    yield found

    def _agreeing(
        self, name: str, wanted: Object, mine: list[Taken], start: int, count: int
    ) -> Iterator[list[Taken]]:
        """Yield ``count`` devices from ``start`` on that meet the constraints with ``mine``."""
        if count == 0:
            yield []
            return
        for index, offer in enumerate(self._pools.offers[start:], start):
            one = self._taken(name, offer, wanted, mine)
            if one is not None and self._matches(offer, wanted) and self._agree([*mine, one]):
                for rest in self._agreeing(name, wanted, [*mine, one], index + 1, count - 1):
                    yield [one, *rest]

    def _agree(self, taken: list[Taken]) -> bool:
        pairs = [(one.request, one.offer) for one in taken]
        return are_met(self._constraints, pairs, lists=self._gates.lists)

    def _taken(self, name: str, offer: Offer, wanted: Object, mine: list[Taken]) -> Taken | None:
        """Return the device for a request, which can have it only once; None if it cannot."""
        is_shared = self._gates.shares and bool(offer.device.get("allowMultipleAllocations"))
        if not is_shared and any(one.offer.key == offer.key for one in mine):
            return None
        if untolerated(offer.device.get("taints", ()), wanted.get("tolerations", ())):
            return None
        if offer.key in self._used and not wanted.get("adminAccess"):
            return None
        asked = wanted.get("capacity", {}).get("requests", {})
        if not self._gates.shares:
            return Taken(name, offer, wanted, None)
        used = self._in_use(offer.key, mine)
        amounts = consumed(offer.device, asked, used)
        if amounts is None:
            return None
        return Taken(name, offer, wanted, amounts if is_shared else None)

    def _in_use(self, key: DeviceKey, mine: list[Taken]) -> Mapping[str, Fraction]:
        """Return what claims, and ``mine``, consume of a shared device."""
        own = total(one.consumed for one in mine if one.offer.key == key and one.consumed)
        before = self._consumed.get(key, {})
        return {
            name: before.get(name, Fraction()) + own.get(name, Fraction())
            for name in {**before, **own}
        }

    def _result(self, taken: Taken) -> Object:
        found: dict[str, Any] = {"request": taken.request, **taken.offer.key._asdict()}
        for field in ("adminAccess", "tolerations"):
            if taken.wanted.get(field):
                found[field] = taken.wanted[field]
        if taken.consumed is not None:
            found["shareID"] = self._new_share()
            found |= {"consumedCapacity": taken.consumed} if taken.consumed else {}
        return found

    def _matches(self, offer: Offer, wanted: Object) -> bool:
        name = wanted["deviceClassName"]
        if name not in self._classes:
            raise AllocationError(f"device class {name} does not exist")
        of_class = self._classes[name]["spec"].get("selectors", [])
        candidate = Candidate(offer.key.driver, offer.device)
        return all(
            parse_selector(one["cel"]["expression"])(candidate)
            for one in [*of_class, *wanted.get("selectors", [])]
        )

    def _class_configs(self, taken: list[Taken]) -> Iterator[Object]:
        wanted = {one.request: one.wanted["deviceClassName"] for one in taken}
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
