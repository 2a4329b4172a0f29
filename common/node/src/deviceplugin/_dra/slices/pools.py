"""What a driver offers: the devices that belong into the slices of its node, by pool."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from deviceplugin._attribution.handover import IN_USE
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState, Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._config.slices import HELD, SHARES, has_shares
from deviceplugin._dra.naming import counted, names_in, pool_name
from deviceplugin._dra.slices.attributes import NUMA_NODE, Describer, lists_in
from deviceplugin._dra.slices.store import Object, SliceStore
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.api_errors import ApiServerError, InvalidError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

OnUnhealthy = Literal["no-schedule", "no-execute", "report"]
"""What becomes of an unhealthy device, as in the settings."""
_EFFECTS: Final = {"no-schedule": "NoSchedule", "no-execute": "NoExecute"}

Offers = Mapping[str, Mapping[str, OfferState]]
"""What is offered of each device, by its resource and id. No slice has other resources."""

_UNDECIDED: Final = (400, 422)
"""An admission webhook or policy refuses to try out what is not really created, or the API server
refuses what is left of it."""
_PROBE: Final = "deviceplugin-probe"


def offers(
    ownership: Ownership, resources: Mapping[str, Resource], *, complete: bool
) -> Offers | None:
    """Return what belongs into slices; nothing in the mode of the device plugin.

    The resources are ``complete`` once each plugin has discovered its devices, and the kubelet has
    the driver. Until then, and until it is known what pods hold, the result is None: slices stay as
    they are.
    """
    if ownership.mode != "dra":
        return {}
    if not (complete and ownership.known):
        return None
    return {name: ownership.offered(resource) for name, resource in resources.items()}


def withheld(given: Offers, only: Collection[Key] | None = None) -> Offers:
    """Return ``given``, with a taint for each device, or for those in ``only`` if that is given."""
    return {
        name: {
            one: state._replace(taint=HELD)
            if not state.taint and (only is None or (name, one) in only)
            else state
            for one, state in states.items()
        }
        for name, states in given.items()
    }


class SliceDevice(NamedTuple):
    """A device in a slice."""

    key: Key
    """Its resource, and its id; or the id of the device that its ``shares`` are of."""
    body: Mapping[str, Any]
    """The device as JSON of a slice."""
    shares: Sequence[Key] = ()

    @property
    def name(self) -> str:
        """Its name, unique in the pool."""
        return str(self.body["name"])

    @property
    def keys(self) -> Sequence[Key]:
        """The devices of the inventory that it stands for."""
        return self.shares or (self.key,)


class Pool(NamedTuple):
    """The devices of one resource, in the order in which the scheduler should take them."""

    name: str
    entries: Sequence[SliceDevice]


class Site(NamedTuple):
    """Whose slices these are."""

    driver: str
    node: str
    owner: Mapping[str, Any] | None = None
    """A reference to the Node, with which slices are removed; None if its UID is unknown."""


class _Known(NamedTuple):
    """An entry, what it was made of, and what had to be cut."""

    states: Sequence[OfferState]
    entry: SliceDevice
    cuts: list[str]


class PoolCatalogue:
    """Describes what is offered, unchanged devices by the same objects. For one thread."""

    def __init__(self, describer: Describer, node: str, on_unhealthy: OnUnhealthy) -> None:
        self._describer = describer
        self._node = node
        self._effect = _EFFECTS.get(on_unhealthy, "")
        self._known: dict[Key, _Known] = {}

    def pools(self, offers: Offers, *, counted: bool = True, lists: bool = True) -> list[Pool]:
        """Return the pools of all resources; with ``counted``, the shares of a device are one.

        Without ``lists``, no attribute is a list; once that was asked for, it stays so.
        """
        if self._describer.lists and not lists:
            self._describer, self._known = replace(self._describer, lists=False), {}
        known: dict[Key, _Known] = {}
        pools = []
        for resource, states in offers.items():
            found = {one.entry.key: one for one in self._entries(resource, states, counted=counted)}
            known |= found
            entries = [one.entry for one in found.values()]
            pools.append(Pool(pool_name(self._node, resource), entries))
        self._known = known
        return pools

    def problems(self) -> list[str]:
        """Return what slices cannot say of the devices in the last pools."""
        return [
            f"{resource} {device_id}: {cut}"
            for (resource, device_id), one in self._known.items()
            for cut in one.cuts
        ]

    def _entries(
        self, resource: str, states: Mapping[str, OfferState], *, counted: bool
    ) -> Iterator[_Known]:
        # Names are given to all, offered or not: a name never means another device meanwhile.
        names = names_in({device_id: state.device for device_id, state in states.items()})
        for name, device_id, ids in names.in_order(states, counted=counted):
            own = [states[one] for one in ids or (device_id,)]
            if not own[0].offered:
                continue
            known = self._known.get((resource, device_id))
            if known is None or known.states != own:
                shares = [(resource, one) for one in ids]
                made = self._described(name, (resource, device_id), own, shares)
                # What a claim holds changes no slice, as long as the count is the same.
                same = known is not None and known.entry == made.entry
                known = made._replace(entry=known.entry) if known and same else made
            yield known

    def _described(
        self, name: str, key: Key, own: Sequence[OfferState], shares: Sequence[Key]
    ) -> _Known:
        device = own[0].device
        count, taint = 0, HELD if own[0].claimed == "share" else own[0].taint
        if shares:
            device = replace(device, id=key[1])
            count, taint = _shares_of(own)
        described, cuts = self._describer.describe(device, key[0], count)
        cause = next((one.cause for one in own if one.taint == taint), IN_USE)
        body = {"name": name, **described, **self._taints(taint, cause)}
        return _Known(own, SliceDevice(key, body, shares), cuts)

    def _taints(self, taint: str, cause: str) -> Mapping[str, Any]:
        # Who holds a device must not lose it because no other may get it.
        effect = _EFFECTS["no-schedule"] if taint == HELD else self._effect
        if not taint or not effect:
            return {}
        value = {"value": cause} if cause else {}
        return {"taints": [{"key": f"{self._describer.driver}/{taint}", **value, "effect": effect}]}


def _shares_of(own: Sequence[OfferState]) -> tuple[int, str]:
    """Return how many shares of a device claims can have altogether, and its taint.

    Kubernetes subtracts those that claims have. It knows nothing of those that pods hold through
    the device plugin, or that claims have held since each was a device of its own.
    """
    ours = [one for one in own if one.taint != HELD and one.claimed != "device"]
    if any(not one.taint for one in ours):
        return sum(not one.taint or one.claimed == "share" for one in ours), ""
    return (len(ours), UNHEALTHY) if ours else (len(own), HELD)


@dataclass(frozen=True, eq=False)
class _Feature:
    """Something in slices that an API server without its feature gate drops, and says nothing."""

    advice: str
    is_in: Callable[[Mapping[str, Any]], object]
    """Returns something if a device in a slice uses it."""
    example: Mapping[str, Any]
    """What a device with it has."""
    if_refused: bool
    """Whether it is used after a refusal of the example. An admission webhook or policy may have
    refused it; but an attribute whose list was dropped is refused for having no value."""


_SHARES: Final = _Feature(
    "enable the feature gate DRAConsumableCapacity, as Kubernetes 1.36 does",
    has_shares,
    {"allowMultipleAllocations": True, "capacity": {SHARES: counted(2)}},
    if_refused=True,
)
_LISTS: Final = _Feature(
    "enable the feature gate DRAListTypeAttributes in API server and scheduler, or remove the "
    "setting list-attributes",
    lists_in,
    {"attributes": {NUMA_NODE: {"ints": [0, 1]}}},
    if_refused=False,
)


class ClusterFeatures:
    """Has each share be a device of its own where the cluster does not count shares, and so on.

    The API server is asked once, before the first device that uses a feature is written, and each
    answer to a write is checked. A feature that was dropped is not used until the next start.
    """

    def __init__(self, store: SliceStore) -> None:
        self._store = store
        self._asked: set[_Feature] = set()
        self._missing: set[_Feature] = set()
        self._problems = Problems(log)

    def pools(self, catalogue: PoolCatalogue, offers: Offers, site: Site) -> list[Pool]:
        """Return the pools of ``offers`` as this cluster can have them, or ApiServerError."""
        pools = self._pools(catalogue, offers)
        for feature in (_SHARES, _LISTS):
            if feature not in self._asked and any(
                feature.is_in(one.body) for pool in pools for one in pool.entries
            ):
                self._ask(feature, site)
                pools = self._pools(catalogue, offers)
        return pools

    def _pools(self, catalogue: PoolCatalogue, offers: Offers) -> list[Pool]:
        counted, lists = _SHARES not in self._missing, _LISTS not in self._missing
        return catalogue.pools(offers, counted=counted, lists=lists)

    def answered(self, sent: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        """Compare a slice that was written with the answer."""
        found = {one["name"]: one for one in kept["spec"].get("devices") or ()}
        for feature in (_SHARES, _LISTS):
            used = [one["name"] for one in sent["spec"]["devices"] if feature.is_in(one)]
            if any(not feature.is_in(found.get(name, {})) for name in used):
                self._is_missing(feature)

    def refused(self, sent: Mapping[str, Any], error: InvalidError) -> bool:
        """Return whether a slice was refused for its lists: the feature was switched off."""
        names = {name for one in sent["spec"]["devices"] for name in lists_in(one)}
        ends = tuple(f".attributes[{name}]" for name in names)
        is_it = any(field.endswith(ends) for field, _ in error.causes)
        if is_it:
            self._is_missing(_LISTS)
        return is_it

    def _is_missing(self, feature: _Feature) -> None:
        self._missing.add(feature)
        event = "lists not kept by the cluster"
        if feature is _SHARES:
            event = "shares not counted by the cluster"
        self._problems.say(feature.advice, event, advice=feature.advice)

    def _ask(self, feature: _Feature, site: Site) -> None:
        probe = _probe(site, feature.example)
        try:
            self.answered(probe, self._store.try_out(probe))
        except ApiServerError as error:
            if error.status not in _UNDECIDED:
                raise
            if not feature.if_refused:
                self._is_missing(feature)
        self._asked.add(feature)


def _probe(site: Site, example: Mapping[str, Any]) -> Object:
    pool = {"name": site.node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "example", **example}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"{_PROBE}-"},
        "spec": {"driver": site.driver, "nodeName": site.node, "pool": pool, "devices": devices},
    }
