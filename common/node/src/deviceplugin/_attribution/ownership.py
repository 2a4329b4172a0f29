"""Who may give out a device: the device plugin or the DRA driver."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from deviceplugin._attribution import handover
from deviceplugin._attribution.claim_holders import Claim, UnreadableRecords
from deviceplugin._attribution.handover import UNHEALTHY, UNKNOWN, Handover, Mode, OfferState
from deviceplugin._attribution.hardware import Records, no_records
from deviceplugin._attribution.holders import Choice, Holders, choose, refuse
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, Key
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.callbacks import Listeners
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_identity import Identity
from deviceplugin.model import Device

if TYPE_CHECKING:
    from deviceplugin._attribution.parts import Room
    from deviceplugin.model import Part

__all__ = ["UNHEALTHY", "UNKNOWN", "Claim", "Mode", "OfferState", "Ownership"]
_Keys = Collection[Key]
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_TIMING: Final = AttributionTiming.of(30.0)


class Ownership:
    """Who owns each device and who holds it. Thread-safe.

    The owner is the protocol that may give a device out; `Handover` says how it changes. Allocate
    and Prepare are decided and recorded under one lock, so no device ever gets two holders, and no
    counter is exceeded. ``resources`` returns those of this process, without waiting for a lock.
    """

    def __init__(
        self,
        mode: Mode = "device-plugin",
        *,
        timing: AttributionTiming = _TIMING,
        resources: Callable[[], Mapping[str, Resource]] = dict,
        clock: Clock = MONOTONIC,
    ) -> None:
        self._mode: Mode = mode
        self._resources, self._clock = resources, clock
        self._lock = threading.Lock()
        self._holders = Holders(timing, resources)
        self._pods, self._claims = self._holders.pods, self._holders.claims
        self._handover = Handover(timing.handover_confirm)
        self._driver_runs, self._listeners = False, Listeners()
        self.hardware, self.stale = self._holders.hardware, self._holders.stale
        self.hardware.changes.add(self._listeners.call)

    # For the device plugin.

    @contextmanager
    def allocating(self, resource: str, ids: Collection[str]) -> Iterator[None]:
        """Count ``ids`` as held by a pod from now on, unless the body, an Allocate, raises.

        AllocationError if a claim holds one of them, or if it is offered through DRA.
        """
        keys = {(resource, device_id) for device_id in ids}
        with self._lock:
            closed = {key: why for key in keys if (why := self._closed_to_pods(key))}
            refuse({**self._holders.crowded(keys), **closed}, resource)
            others = self._holders.begin(keys)
            same = {key: why for key in keys if (why := self._holders.elsewhere(key))}
        given: Collection[Key] = ()
        try:
            refuse(same, resource)
            yield
            given = keys
        finally:
            with self._lock:
                others |= self._holders.end(keys, given, self._clock.now())
            self._call(others=others, changed=self._mode == "dra")

    def withheld(self, resource: str, ids: Iterable[str]) -> Mapping[str, str]:
        """Return which of ``ids`` the device plugin must not offer, each with the reason."""
        with self._lock:
            by_dra = handover.BY_DRA if self._mode == "dra" else ""
            room = self._holders.room(resource)
            if not (by_dra or self._claims or self._handover or self.hardware.rivals or room):
                return _NOTHING  # so that a node without DRA does not pay for it
            closed = {one: self._closed_to_pods((resource, one), room) for one in ids}
            return {one: why or by_dra for one, why in closed.items() if why or by_dra}

    def _closed_to_pods(self, key: Key, room: "Room | None" = None) -> str:
        """Return why no Allocate may give out the device; empty if one may.

        The kubelet may still have chosen a device that it has been told to be unhealthy.
        """
        why = self._holders.closed_to_pods(key, room)
        if why or self._owner_is_plugin(key):
            return why
        return handover.BY_DRA if self._mode == "dra" else handover.LEAVING_DRA

    def _owner_is_plugin(self, key: Key) -> bool:
        return (self._mode == "device-plugin") != (key in self._handover)

    # For DRA.

    def prepare(
        self, claim: Claim, keys: _Keys, *, admin: _Keys = (), choices: Sequence[Choice] = ()
    ) -> Sequence[Sequence[Key]]:
        """Count ``keys`` as held by ``claim`` from now on. Repeating it changes nothing.

        A claim gets those in ``admin``, to which it has admin access, whoever holds them. It also
        gets shares for each of ``choices``, which are free or its own already: they are returned.
        After an AllocationError nothing is recorded, and the kubelet tries again.
        """
        wanted = frozenset(keys) - frozenset(admin)
        with self._lock:
            held = self._claims.held(claim.uid)
            closed = lambda key: "" if key in held else self._holders.closed_to(claim, key)  # noqa: E731
            chosen = choose(wanted, choices, closed, last=self._handover.keys - held)
            # What it holds already stays its own, whatever has become of the counters.
            refuse(self._holders.crowded(wanted) if wanted - held else {})
            self._claims.add(claim, wanted, frozenset(key for each in chosen for key in each))
            others = self._holders.compare()
        self._call(others=others)
        return chosen

    def unprepare(self, uid: str) -> frozenset[Key]:
        """Forget the claim ``uid``, and return the devices that are free now; none if unknown."""
        with self._lock:
            free = self._claims.forget(uid)
            others = self._holders.compare()
        self._call(others=others)
        return free

    def restore(
        self,
        claims: Mapping[Claim, _Keys],
        shares: _Keys = (),
        *,
        unreadable: UnreadableRecords | None = None,
        records: Records = no_records,
        parts: "Mapping[Key, Part]" = _NOTHING,
    ) -> None:
        """Count what ``claims`` have as held by them, whoever else does: it was prepared before.

        What others with ``unreadable`` records have is given to nobody. ``parts`` are recorded.
        """
        with self._lock:
            self._holders.claimed(parts)
            if unreadable is not None:
                self._claims.respect(unreadable)
            for claim, keys in claims.items():
                self._claims.record(claim, frozenset(keys), shares)
            others = self._holders.compare(records)
        self._call(others=others)

    def claims(self) -> Mapping[Key, Claim]:
        return self._claims.by_device

    def offered(self, resource: Resource) -> Mapping[str, OfferState]:
        """Return what DRA says of each device of ``resource``, by id; nothing until it is known."""
        with self._lock:
            room = self._holders.room(resource.name, self._holders.by_pods | self._handover.keys)
            name, devices = resource.name, resource.devices.items()
            return {one: self._offer(device, (name, one), room) for one, device in devices}

    def _offer(self, device: Device, key: Key, room: "Room | None") -> OfferState:
        offered = self._mode == "dra" and self._pods.known
        is_leaving = key in self._handover and key not in self._claims.by_device
        leaving = handover.LEAVING_PLUGIN if is_leaving else ""
        closed = self._holders.closed_in_slices(key, room) or leaving
        return OfferState.of(device, offered=offered, closed=closed, claimed=self._claims.way(key))

    # The mode, and the handover from one to the other.

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def known(self) -> bool:
        """Whether it is known what pods hold. Until then, nothing is given to a claim."""
        return self._pods.known

    def concerns_dra(self, resource: str) -> bool:
        """Return whether DRA offers devices of ``resource``, or did and is not done with them."""
        with self._lock:
            keys = self._claims.by_device.keys() | self._handover.keys
            is_on = self._mode == "dra" or self._driver_runs
            return is_on or any(name == resource for name, _ in keys)

    def driver_runs(self, *, runs: bool) -> None:
        """Record whether the DRA driver runs. As long as it does, DRA concerns every resource."""
        with self._lock:
            self._driver_runs = runs
        self._listeners.call()

    @property
    def leaving(self) -> frozenset[Key]:
        """The devices that the mode's protocol does not offer yet, because the other one did."""
        with self._lock:
            return frozenset(self._handover.keys)

    @property
    def draining(self) -> bool:
        """Whether DRA waits for devices that the device plugin, or a pod of it, has."""
        with self._lock:
            held = any(name in self._resources() for name, _ in self._pods.held)
            return self._mode == "dra" and (held or bool(self._handover))

    def concerns_pods(self, resource: str) -> bool:
        """Return whether a pod has devices of ``resource`` by the device plugin, or may get."""
        with self._lock:
            leaving = self._handover.keys if self._mode == "dra" else set[Key]()
            keys = {*self._holders.allocating, *self._pods.held} | leaving
            return not self._pods.known or any(name == resource for name, _ in keys)

    @property
    def wanted(self) -> bool:
        """Whether it must be known what pods hold."""
        with self._lock:
            held = self._handover or self._claims or self.hardware.waits or self._holders.held
            return self._mode == "dra" or bool(held)

    def switch(self, mode: Mode, *, again: bool = False) -> None:
        """Offer devices by ``mode``, maybe ``again``, each once the other protocol gives it up."""
        with self._lock:
            if mode == self._mode and not again:
                return
            self._mode = mode
            ours = self._resources().values()
            self._handover.turn((each.name, one) for each in ours for one in each.devices)
        self._listeners.call()

    def observe(self, holdings: Holdings, kubelet: Identity, records: Records = no_records) -> None:
        with self._lock:
            before = self._state()
            now = self._clock.now()
            others = self._holders.observe(holdings, kubelet, now, records)
            if self._mode == "dra" and holdings.holds is not None:
                listed, held = self._pods.listed, self._holders.by_pods
                self._handover.observe(listed, held, kubelet, now, complete=holdings.complete)
            changed = before != self._state()
        self._call(others=others, changed=changed)

    def acknowledged(self, allocatable: Collection[Key]) -> None:
        """Record that the kubelet would give out only ``allocatable`` to pods now.

        It must have been asked after the mode changed and the new list was sent to it.
        """
        with self._lock:
            if self._mode == "dra":
                self._handover.acknowledged(allocatable)

    def published(self, keys: Collection[Key]) -> None:
        """Record that exactly ``keys`` are in the slices of this node, and no write is under way.

        The publisher of the slices must call it after each change that the API server has answered,
        and before it asks again what is offered.
        """
        with self._lock:
            over = () if self._mode == "dra" else self._handover.keys - frozenset(keys)
            self._handover.end(over)
        self._call(others=False, changed=bool(over))

    def _state(self) -> tuple[object, ...]:
        """Return what an observation can change of what is offered."""
        held = frozenset(self._pods.held) if self._mode == "dra" else frozenset()
        return self._pods.known, held, len(self._handover), self._claims.state

    def elsewhere(self, resource: str) -> Mapping[str, str]:
        """Return the devices of ``resource`` that are held under another id, each with by whom.

        Also those that an operator holds, and whose holder has a node that is gone, each with why.
        """
        with self._lock:
            return self._holders.closed(resource)

    def hold(self, held: Mapping[Key, str]) -> None:
        """Give out none of ``held``, which an operator holds, each with why."""
        with self._lock:
            self._holders.held = held
        self._listeners.call()

    def users(self, keys: _Keys) -> Sequence[str] | None:
        """Return which pods and claims have any of ``keys`` now; None if that is not known."""
        with self._lock:
            found = {who for key in keys if (who := self._holders.user(key))}
            return sorted(found) if self._pods.known else None

    def _call(self, *, others: bool, changed: bool = True) -> None:
        if others:
            self.hardware.changes.call()
        elif changed:
            self._listeners.call()

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, from any thread, after another offer; return what ends that."""
        return self._listeners.add(changed)
