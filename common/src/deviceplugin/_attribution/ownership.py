"""Who may give out a device: the device plugin or the DRA driver."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from deviceplugin._attribution import protocol_state
from deviceplugin._attribution.claim_holders import Claim, ClaimHolders, Unreadable
from deviceplugin._attribution.device_choice import Choice, choose, refuse
from deviceplugin._attribution.handover import Handover
from deviceplugin._attribution.pod_holders import PodHolders
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, Key
from deviceplugin._attribution.protocol_state import HELD, UNHEALTHY, UNKNOWN, Mode, OfferState
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.callbacks import Listeners
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_identity import Identity
from deviceplugin.model import Device

__all__ = ["HELD", "UNHEALTHY", "UNKNOWN", "Claim", "Mode", "OfferState", "Ownership"]
_Keys = Collection[Key]
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_TIMING: Final = AttributionTiming.of(30.0)


class Ownership:
    """Who owns each device and who holds it. Thread-safe.

    The owner is the protocol that may give a device out. An Allocate and a Prepare are decided and
    recorded under one lock, so no device ever gets two holders, however often the mode changes. See
    `Handover` for how a device changes its owner.

    Args:
        mode: The protocol that offers devices.
        timing: The intervals of polls.
        resources: Returns the resources of this process, by name, without waiting for a lock.
        clock: The clock that polls are timed by.
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
        self._pods = PodHolders(timing)
        self._allocating: Counter[Key] = Counter()
        self._claims = ClaimHolders()
        self._handover = Handover(timing.handover_confirm)
        self._driver_runs, self._listeners = False, Listeners()

    # For the device plugin.

    @contextmanager
    def allocating(self, resource: str, ids: Collection[str]) -> Iterator[None]:
        """Count ``ids`` as held by a pod from now on, unless the body, an Allocate, raises.

        Raises:
            AllocationError: A claim holds one of them, or it is offered through DRA.
        """
        keys = {(resource, device_id) for device_id in ids}
        with self._lock:
            refuse({key: why for key in keys if (why := self._closed_to_pods(key))}, resource)
            self._allocating.update(keys)
        given: Collection[Key] = ()
        try:
            yield
            given = keys
        finally:
            with self._lock:
                self._pods.allocated(given, self._clock.now())
                self._allocating.subtract(keys)  # faster than the difference of two Counters
                for key in (key for key in keys if not self._allocating[key]):
                    del self._allocating[key]
            if self._mode == "dra":
                self._listeners.call()

    def withheld(self, resource: str, ids: Iterable[str]) -> Mapping[str, str]:
        """Return which of ``ids`` the device plugin must not offer, each with the reason."""
        with self._lock:
            if self._mode == "device-plugin" and not self._claims and not self._handover:
                return _NOTHING  # so that a node without DRA does not pay for it
            keys = ((resource, device_id) for device_id in ids)
            return {key[1]: why for key in keys if (why := self._withheld(key))}

    def _closed_to_pods(self, key: Key) -> str:
        """Return why no Allocate may give out the device; empty if one may.

        That a pod holds it is no reason: the kubelet decides among pods, and notices their end
        sooner. It may still have chosen a device that it has been told to be unhealthy.
        """
        if why := self._claims.closed(key):
            return why
        if self._owner_is_plugin(key):
            return ""
        return protocol_state.BY_DRA if self._mode == "dra" else protocol_state.LEAVING_DRA

    def _withheld(self, key: Key) -> str:
        leaving = self._mode == "dra" and self._owner_is_plugin(key)
        return self._closed_to_pods(key) or (leaving and protocol_state.BY_DRA) or ""

    def _owner_is_plugin(self, key: Key) -> bool:
        return (self._mode == "device-plugin") != (key in self._handover)

    # For DRA.

    def prepare(
        self, claim: Claim, keys: _Keys, *, admin: _Keys = (), choices: Sequence[Choice] = ()
    ) -> Sequence[Sequence[Key]]:
        """Count ``keys`` as held by ``claim`` from now on. Repeating it changes nothing.

        A claim gets those in ``admin``, to which it has admin access, whoever holds them. It also
        gets shares for each of ``choices``, which are free or its own already: they are returned.

        Raises:
            AllocationError: Another claim or a pod holds a device, or it is not known yet what pods
                hold. Nothing is recorded. The kubelet tries again.
        """
        wanted = frozenset(keys) - frozenset(admin)
        with self._lock:
            held = self._claims.held(claim.uid)
            closed = lambda key: "" if key in held else self._closed_to(claim, key)  # noqa: E731
            chosen = choose(wanted, choices, closed, last=self._handover.keys - held)
            self._claims.add(claim, wanted, frozenset(key for each in chosen for key in each))
        self._listeners.call()
        return chosen

    def unprepare(self, uid: str) -> frozenset[Key]:
        """Forget the claim ``uid``, and return the devices that are free now; none if unknown."""
        with self._lock:
            free = self._claims.forget(uid)
        self._listeners.call()
        return free

    def restore(
        self,
        claims: Mapping[Claim, _Keys],
        shares: _Keys = (),
        *,
        unreadable: Unreadable | None = None,
    ) -> None:
        """Count what ``claims`` have as held by them, whoever else does: it was prepared before.

        What others with ``unreadable`` records have is given to nobody.
        """
        with self._lock:
            if unreadable is not None:
                self._claims.respect(unreadable)
            for claim, keys in claims.items():
                self._claims.record(claim, frozenset(keys), shares)
        self._listeners.call()

    def claims(self) -> Mapping[Key, Claim]:
        """Return the claims that hold devices, by device."""
        return self._claims.by_device

    def offered(self, resource: Resource) -> Mapping[str, OfferState]:
        """Return what DRA says of each device of ``resource``, by its id.

        Until it is known what pods hold, nothing is offered.
        """
        with self._lock:
            return {
                device_id: self._offer(device, (resource.name, device_id))
                for device_id, device in resource.devices.items()
            }

    def _closed_to(self, claim: Claim, key: Key) -> str:
        """Return why ``claim``, perhaps of the other mode, may not get it; empty if it may."""
        if why := self._claims.closed(key, claim):
            return why
        if not self._pods.known:
            return UNKNOWN
        return self._held_by_pod(key)

    def _held_by_pod(self, key: Key) -> str:
        if key in self._allocating or key in self._pods.held:
            return f"held by {self._pods.name(key)} through the device plugin"
        return ""

    def _offer(self, device: Device, key: Key) -> OfferState:
        offered = self._mode == "dra" and self._pods.known
        held = self._held_by_pod(key) or self._claims.unreadable_holder(key)
        is_leaving = key in self._handover and key not in self._claims.by_device
        closed = held or (protocol_state.LEAVING_PLUGIN if is_leaving else "")
        return protocol_state.of(
            device, offered=offered, closed=closed, claimed=self._claims.way(key)
        )

    # The mode, and the handover from one to the other.

    @property
    def mode(self) -> Mode:
        """The protocol that offers devices."""
        return self._mode

    @property
    def known(self) -> bool:
        """Whether it is known what pods hold. Until then, nothing is given to a claim."""
        return self._pods.known

    def concerns_dra(self, resource: str) -> bool:
        """Return whether DRA offers devices of ``resource``, or did and is not done with them."""
        with self._lock:
            keys = self._claims.by_device.keys() | self._handover.keys
            is_served = self._mode == "dra" or self._driver_runs
            return is_served or any(name == resource for name, _ in keys)

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
            ours = self._resources()
            held = bool(self._handover) or any(name in ours for name, _ in self._pods.held)
            return self._mode == "dra" and held

    @property
    def wanted(self) -> bool:
        """Whether it must be known what pods hold."""
        with self._lock:
            return bool(self._mode == "dra" or self._handover or self._claims)

    def switch(self, mode: Mode) -> None:
        """Offer devices by the protocol of ``mode``, each as soon as the other gives it up."""
        with self._lock:
            if mode == self._mode:
                return
            self._mode = mode
            present = self._resources().values()
            self._handover.turn((each.name, one) for each in present for one in each.devices)
        self._listeners.call()

    def observe(self, holdings: Holdings, kubelet: Identity) -> None:
        """Take account of what ``kubelet`` says that pods hold."""
        with self._lock:
            before = self._state()
            now = self._clock.now()
            self._claims.observe(holdings)
            self._pods.observe(holdings, kubelet, self._allocating, now)
            if self._mode == "dra" and holdings.holds is not None:
                held = self._pods.held | self._allocating.keys()
                listed, complete = self._pods.listed, holdings.complete
                self._handover.observe(listed, held, kubelet, now, complete=complete)
            changed = before != self._state()
        if changed:
            self._listeners.call()

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
        if over:
            self._listeners.call()

    def _state(self) -> tuple[object, ...]:
        """Return what an observation can change of what is offered."""
        held = frozenset(self._pods.held) if self._mode == "dra" else frozenset()
        return self._pods.known, held, len(self._handover), self._claims.state

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, from any thread, when what is offered may have changed.

        Return a function that ends this.
        """
        return self._listeners.add(changed)
