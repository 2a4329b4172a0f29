"""Who holds which devices: pods through the device plugin, and claims through DRA."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from deviceplugin._attribution.claim_holders import Claim, ClaimHolders
from deviceplugin._attribution.handover import UNKNOWN
from deviceplugin._attribution.hardware import HeldHardware, Records, no_records, shown
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, Key
from deviceplugin._attribution.releases import Observation, ReleaseLedger
from deviceplugin._attribution.stale import PREFIX, Stale
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.file_identity import Identity
from deviceplugin.errors import AllocationError

if TYPE_CHECKING:
    from deviceplugin._attribution.parts import Parts, Room
    from deviceplugin.model import Part


class PodHolders:
    """The devices that pods hold, or may hold. Not thread-safe; times are monotonic seconds.

    A device is held from its allocation until its release is certain, by `ReleaseLedger`. One
    that the kubelet only has recorded for a pod counts as held, but not for ever: the pod may have
    ended, and an idle kubelet does not write its checkpoint again.
    """

    def __init__(self, timing: AttributionTiming) -> None:
        self._ledger = ReleaseLedger(timing.handover_confirm, timing.admission, timing.recorded)
        self._last = Holdings()
        self._kubelet: Identity = None
        self._disbelieved: AbstractSet[Key] = frozenset()
        """Those that are recorded, but have been for so long that no pod can have them."""
        self.listed: AbstractSet[Key] = frozenset()
        """The devices that pods held in the last poll, or that were recorded for one."""
        self.known = False
        """Whether a kubelet that knows all pods has reported what they hold."""

    @property
    def held(self) -> AbstractSet[Key]:
        """The devices that pods hold, or may hold."""
        return self._ledger.tracked

    def name(self, key: Key) -> str:
        """Return which pod holds the device ``key``, which is held, for a message."""
        return self.listed_name(key) or "a pod"

    def listed_name(self, key: Key) -> str:
        """Return which pod the kubelet listed last with the device; empty if none."""
        resource, device_id = key
        holds = self._last.holders(resource).get(device_id)
        return f"pod {holds[0].namespace}/{holds[0].pod}" if holds else ""

    def allocated(self, keys: Collection[Key], now: float) -> None:
        self._ledger.allocated(keys, self._kubelet, now)

    def observe(
        self, holdings: Holdings, kubelet: Identity, busy: Collection[Key], now: float
    ) -> None:
        """Take account of what ``kubelet`` says that pods hold. ``busy`` are being allocated."""
        if holdings.holds is None:
            return
        self._last, self._kubelet = holdings, kubelet
        self.known = self.known or holdings.complete
        seen = Observation.of(holdings, kubelet)
        held = seen.held
        self._disbelieved &= holdings.recorded
        found = holdings.recorded - held - self.held - self._disbelieved
        self._ledger.allocated(found, kubelet, now)
        over = self._ledger.observe(seen, busy, now)
        self._disbelieved |= holdings.recorded & frozenset(over)
        self._ledger.forget(over)
        self.listed = held | (holdings.recorded - self._disbelieved)


class Holders:
    """All that hold devices, and why others may not. Not thread-safe; monotonic seconds."""

    def __init__(
        self, timing: AttributionTiming, resources: Callable[[], Mapping[str, Resource]] = dict
    ) -> None:
        self.pods = PodHolders(timing)
        self.claims = ClaimHolders()
        self._resources = resources
        self._parts: Parts | None = None
        self.allocating: Counter[Key] = Counter()
        """The devices of which allocations are under way."""
        self.hardware = HeldHardware()
        self.held: Mapping[Key, str] = {}
        """What an operator holds, so that nobody else gets it, each with why."""
        self._seen_stale: Mapping[Key, tuple[str, Stale]] = {}
        """The pods that the last poll found with nodes that had gone before it."""

    def begin(self, keys: Collection[Key]) -> bool:
        """Begin an allocation of ``keys``. Return whether other devices are closed by it."""
        self.allocating.update(keys)
        return self.hardware.hold(keys)

    def end(self, keys: Collection[Key], given: Collection[Key], now: float) -> bool:
        """End the allocation of ``keys``, of which pods got ``given``; return as ``begin``."""
        self.pods.allocated(given, now)
        renewed = self.hardware.give(given)
        self.allocating.subtract(keys)  # faster than the difference of two Counters
        for key in keys:
            if not self.allocating[key]:
                del self.allocating[key]
        return renewed or (not given and self.compare())

    def observe(self, holdings: Holdings, kubelet: Identity, now: float, records: Records) -> bool:
        """Take account of what ``kubelet`` says; return whether others are closed, or why."""
        before = {key: self.elsewhere(key) for key in self.hardware.rivals}
        stale = self.stale()
        self.claims.observe(holdings)
        self.pods.observe(holdings, kubelet, self.allocating, now)
        changed = self.compare(records)
        found = {key: (self.pods.listed_name(key), one) for key, one in self.hardware.stale.items()}
        self._seen_stale = {key: both for key, both in found.items() if both[0]}
        # The name of the pod may have become known.
        named = before != {key: self.elsewhere(key) for key in before}
        return changed or named or stale != self.stale()

    def stale(self) -> Mapping[Key, tuple[str, Stale]]:
        """Return the devices of which a claim or pod has a node that is gone, each with both.

        Never for a pod that may have ended: it must be listed after the node was found to be gone.
        Thread-safe, because all that it reads is replaced and never modified.
        """
        seen, claims, nodes = self._seen_stale, self.claims.by_device, self.hardware.stale
        of_claims = {key: (str(claims[key]), one) for key, one in nodes.items() if key in claims}
        return {key: both for key, both in seen.items() if nodes.get(key) == both[1]} | of_claims

    def compare(self, records: Records = no_records) -> bool:
        """Find out which devices are closed by what is held now; return whether others are."""
        held = self.by_pods | self.claims.by_device.keys()
        if self._parts is not None:
            self._parts.keep(held)
        return self.hardware.keep(held, records)

    @property
    def by_pods(self) -> AbstractSet[Key]:
        """The devices that pods hold, or may."""
        return self.pods.held | self.allocating.keys()

    def parts(self) -> "Parts":
        """Return the parts that devices are, for a plugin that has some."""
        from deviceplugin._attribution.parts import Parts  # few have

        self._parts = self._parts or Parts(self._resources)
        return self._parts

    def claimed(self, parts: "Mapping[Key, Part]") -> None:
        """Record the parts that claims got, by their records."""
        if parts:
            self.parts().claimed(parts)

    def room(self, resource: str, held: AbstractSet[Key] | None = None) -> "Room | None":
        """Return the room that ``held``, by default all that is, leaves; None without parts."""
        found = self._resources().get(resource)
        has_some = found is not None and found.listed is not found.devices
        if not (has_some or (self._parts is not None and self._parts.has_claimed(resource))):
            return None
        parts = self.parts()
        unread = {one for one in parts.keys(resource) if self.claims.unreadable_holder(one)}
        held = self.by_pods | self.claims.by_device.keys() if held is None else held
        return parts.room(key for key in held | unread if key[0] == resource)

    def crowded(self, keys: Collection[Key]) -> Mapping[Key, str]:
        """Return why ``keys`` have no room together beside what others hold, as `Room` does."""
        found: dict[Key, str] = {}
        for resource in {key[0] for key in keys}:
            if (room := self.room(resource)) is not None:
                found |= room.refusals(key for key in keys if key[0] == resource)
        return found

    def user(self, key: Key) -> str:
        """Return which claim or pod has the device, or its hardware; empty if none does."""
        if claim := self.claims.by_device.get(key):
            return str(claim)
        if key in self.allocating or key in self.pods.held:
            return self.pods.name(key)
        return self.elsewhere(key) or self.claims.unreadable_holder(key)

    def by_pod(self, key: Key) -> str:
        """Return which pod holds the device, in words; empty if none does."""
        if key in self.allocating or key in self.pods.held:
            return f"held by {self.pods.name(key)} through the device plugin"
        return ""

    def elsewhere(self, key: Key, claim: Claim | None = None) -> str:
        """Return who else than ``claim`` holds the device under another id; empty if nobody."""
        for other in self.hardware.rivals.get(key, ()):
            holder = self.claims.by_device.get(other)
            if holder is None or holder != claim:
                return f"held as {shown(other, key)} by {holder or self.pods.name(other)}"
        return ""

    def closed(self, resource: str) -> Mapping[str, str]:
        """Return why devices of ``resource`` are closed whoever asks, by id."""
        ours = [key for key in self.hardware.rivals if key[0] == resource]
        found = {key[1]: self.elsewhere(key) for key in ours}
        found |= {one: why for (name, one), why in self.held.items() if name == resource}
        for (name, one), (who, node) in self.stale().items():
            if name == resource:
                why = f"{PREFIX}{who} has {node.what}, which is gone: restart the pod"
                # A hold comes first, because it keeps the pod: nobody else could get the device.
                found[one] = "; ".join(filter(None, (found.get(one), why)))
        return found

    def closed_to_pods(self, key: Key, room: "Room | None" = None) -> str:
        """Return why no pod may get the device; empty if one may.

        That a pod holds it under this id is no reason: the kubelet decides among pods, and notices
        their end sooner.
        """
        why = self.held.get(key) or self.claims.closed(key) or self.elsewhere(key)
        return why or ("" if room is None else room.why(key))

    def closed_in_slices(self, key: Key, room: "Room | None") -> str:
        """Return why no further claim may get the device; empty if one may."""
        held = self.held.get(key) or self.by_pod(key) or self.claims.unreadable_holder(key)
        held = held or self.elsewhere(key, self.claims.by_device.get(key))
        return held or ("" if room is None else room.why(key))

    def closed_to(self, claim: Claim, key: Key) -> str:
        """Return why ``claim`` may not get the device; empty if it may."""
        if why := self.held.get(key) or self.claims.closed(key, claim):
            return why
        if not self.pods.known:
            return UNKNOWN
        return self.by_pod(key) or self.elsewhere(key, claim)


class Choice(NamedTuple):
    """``size`` of the devices ``among``, the first that are free: they are equal."""

    what: str
    """What the devices are shares of, for messages."""
    size: int
    among: Sequence[Key]


def choose(
    wanted: Collection[Key],
    choices: Sequence[Choice],
    closed: Callable[[Key], str],
    last: Collection[Key],
) -> list[Sequence[Key]]:
    """Return the devices for each of ``choices``: no device twice, and none that is ``wanted``.

    Devices in ``last`` are chosen only if there are too few others. AllocationError, with why, if a
    wanted one is ``closed``, or if there are too few.
    """
    refuse({key: why for key in wanted if (why := closed(key))})
    found: list[Sequence[Key]] = []
    gone = set(wanted)
    for what, size, among in choices:
        free = [key for key in among if key not in gone and not closed(key)]
        if len(free) < size:
            reasons = [f"{key[1]} is {why}" for key in among if (why := closed(key))]
            others = ", ".join(reasons) or "the claim has the others"
            raise AllocationError(
                f"{size} of the {len(among)} shares of {what} are needed, and {len(free)} are "
                f"free: {others}",
                resource=among[0][0] if among else "",
                device_ids=[key[1] for key in among],
            )
        found.append(sorted(free, key=lambda key: key in last)[:size])
        gone.update(found[-1])
    return found


def refuse(reasons: Mapping[Key, str], resource: str = "") -> None:
    """Raise AllocationError for ``reasons`` by device, unless there are none."""
    if reasons:
        raise AllocationError(
            ", ".join(f"{key[1]} is {reasons[key]}" for key in sorted(reasons)),
            resource=resource,
            device_ids=[device_id for _, device_id in sorted(reasons)],
        )
