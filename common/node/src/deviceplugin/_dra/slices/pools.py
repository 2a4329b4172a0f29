"""What a driver offers: the devices that belong into the slices of its node, by pool."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from deviceplugin._attribution.handover import IN_USE
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState, Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._config.slices import HELD
from deviceplugin._dra.naming import names_in, pool_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.counters import Body, consumption, counter_sets, is_hidden
from deviceplugin._inventory.published import Resource

OnUnhealthy = Literal["no-schedule", "no-execute", "report"]
"""What becomes of an unhealthy device, as in the settings."""
_EFFECTS: Final = {"no-schedule": "NoSchedule", "no-execute": "NoExecute"}

Offers = Mapping[str, Mapping[str, OfferState]]
"""What is offered of each device, by its resource and id. No slice has other resources."""


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
    counters: Sequence[Body] = ()
    """Those of hardware that has parts, as JSON of a slice."""


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

    @property
    def takes(self) -> bool:
        """Whether it takes something of counters."""
        return "consumesCounters" in self.entry.body


class PoolCatalogue:
    """Describes what is offered, unchanged devices by the same objects. For one thread."""

    def __init__(self, describer: Describer, node: str, on_unhealthy: OnUnhealthy) -> None:
        self._describer = describer
        self._node = node
        self._effect = _EFFECTS.get(on_unhealthy, "")
        self._known: dict[Key, _Known] = {}
        self._parts = self._groups = True

    def pools(
        self,
        offers: Offers,
        *,
        counted: bool = True,
        lists: bool = True,
        parts: bool = True,
        groups: bool = True,
    ) -> list[Pool]:
        """Return the pools of all resources; with ``counted``, the shares of a device are one.

        Without ``lists``, no attribute is a list; once that was asked for, it stays so. Without
        ``parts`` there are none on demand, and without ``groups`` none that have groups.
        """
        if self._describer.lists and not lists:
            self._describer, self._known = replace(self._describer, lists=False), {}
        if (self._parts, self._groups) != (parts, groups):
            self._parts, self._groups, self._known = parts, groups, {}
        known: dict[Key, _Known] = {}
        pools = []
        for resource, states in offers.items():
            found = {one.entry.key: one for one in self._entries(resource, states, counted=counted)}
            known |= found
            entries = [one.entry for one in found.values()]
            sets = counter_sets(one.states[0] for one in found.values() if one.takes)
            pools.append(Pool(pool_name(self._node, resource), entries, sets))
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
            body = known.entry.body
            if not is_hidden(own[0], body, parts=self._parts, groups=self._groups):
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
        if device.part is not None and self._parts:
            described |= consumption(device, groups=self._groups)
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
