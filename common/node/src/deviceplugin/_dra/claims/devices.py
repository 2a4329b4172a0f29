"""The devices of this node that claims name, and which of them a claim gets."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin._attribution.claim_holders import ClaimedPlace, Place, UnreadableRecords
from deviceplugin._attribution.holders import Choice
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._attribution.stale import PREFIX, Given
from deviceplugin._dra.claims.reading import Result
from deviceplugin._dra.claims.record import Record, ResultKey
from deviceplugin._dra.naming import PoolNames, device_name, former_name, names_in, pool_name
from deviceplugin._inventory.published import Resource
from deviceplugin.errors import AllocationError, UnhealthyDeviceError, UnknownDeviceError
from deviceplugin.model import Device


@dataclass(frozen=True, slots=True)
class Located:
    """A result of a claim, and a device that it means."""

    result: Result
    resource: Resource
    device: Device
    shared: str = ""
    """The id of the device that it is a share of; empty if slices have it by itself."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """A result of a claim, and the devices that it can mean."""

    result: Result
    resource: Resource
    devices: Sequence[Device]
    """The one device, or all usable shares of one."""
    count: int = 1
    """How many of ``devices`` the claim has."""
    shared: str = ""
    """The id of the device that they are shares of; empty if they are not."""

    def located(self, keys: Iterable[Key]) -> Iterator[Located]:
        """Yield the devices that were chosen, by their keys."""
        by_id = {device.id: device for device in self.devices}
        for _, device_id in keys:
            yield Located(self.result, self.resource, by_id[device_id], self.shared)

    @property
    def keys(self) -> Sequence[Key]:
        """The resource and the id of each device."""
        return [(self.resource.name, device.id) for device in self.devices]


@dataclass(eq=False, repr=False)
class Locator:
    """Finds devices of ``node``. Thread-safe."""

    node: str
    resources: Callable[[], Mapping[str, Resource]]
    discovered: Callable[[], bool]
    """Returns whether all plugins have discovered their devices at least once."""

    def __post_init__(self) -> None:
        self._names: dict[str, tuple[Mapping[str, Device] | None, *tuple[PoolNames, ...]]] = {}
        """By resource: the devices that the names were made of, and what the names stand for."""

    def resource(self, name: str) -> Resource | None:
        return self.resources().get(name)

    def find(self, results: Sequence[Result]) -> Sequence[Candidates]:
        """Return the devices that ``results`` name; AllocationError if one may not be used."""
        complete = self.discovered()  # before the resources are read
        pools = {pool_name(self.node, name): one for name, one in self.resources().items()}
        return [self._find(result, pools, complete=complete) for result in results]

    def _find(self, result: Result, pools: Mapping[str, Resource], *, complete: bool) -> Candidates:
        resource = pools.get(result.pool)
        found, shared = self._devices(resource, result.device) if resource else ([], "")
        if resource is None or not found:
            what = f"device {result.device} of pool {result.pool}"
            if not complete:
                raise AllocationError(f"not known yet: {what}: devices are still being discovered")
            raise UnknownDeviceError(f"unknown device: {what}")
        # Ownership says who may have a device whose holder has a node that is gone.
        anyway = result.tolerant or result.admin
        usable = [
            one for one in found if anyway or one.health or one.health.reason.startswith(PREFIX)
        ]
        if not usable:
            raise UnhealthyDeviceError(
                f"unhealthy device: {shared or found[0].id} ({found[0].health.reason})",
                resource=resource.name,
                device_ids=[one.id for one in found],
            )
        if not shared:
            return Candidates(result, resource, usable)
        # A scheduler that does not count shares gives a claim the whole device.
        count = result.count if result.share else len(found)
        return Candidates(result, resource, usable, count, shared)

    def _devices(self, resource: Resource, name: str) -> tuple[Sequence[Device], str]:
        """Return the device of that name; or all shares of it, and its id."""
        devices = resource.devices
        made_of, *both = self._names.get(resource.name, (None,))
        if made_of is not devices:
            both = [names_in(devices), names_in(devices, former_name)]
            self._names[resource.name] = devices, *both
        for names in both:  # a claim that an earlier release has offered has a former name
            if name in names.shared:
                return [devices[one] for one in names.shared[name]], names.wholes[name]
            if name in names.devices:
                return [devices[names.devices[name]]], ""
        return [], ""


def book(
    ownership: Ownership, claim: Claim, found: Sequence[Candidates], before: Record | None
) -> Sequence[Located]:
    """Count devices as held by ``claim``, and return them, in the order of ``found``.

    For a share it has as many ids as that consumes: those of ``before``, if it had the share then.
    What it had before it keeps. Devices that it has as an administrator are not counted.
    AllocationError if somebody else holds one; then nothing has changed.
    """
    had = {one.key: one.place for one in before.devices if not one.admin} if before else {}
    ranked = [(one, _ranked(one, had)) for one in found]
    choices = [Choice(one.shared, one.count, keys) for one, keys in ranked if _is_choice(one)]
    single = {one.keys[0] for one in found if not (one.shared or one.result.admin)}
    kept = had.keys() - {key for each in choices for key in each.among}
    chosen = iter(ownership.prepare(claim, single | kept, choices=choices))
    return [
        located
        for one, keys in ranked
        for located in one.located(next(chosen) if _is_choice(one) else keys[: one.count])
    ]


def restore(
    ownership: Ownership, records: Collection[Record], unreadable: UnreadableRecords
) -> None:
    """Count what ``records`` have as held by their claims, and ``unreadable`` ones as unknown."""
    held = {one.claim: one.held for one in records}
    shares = {key for one in records for key in one.shares}
    given = {key: Given(one.paths, one.held) for one in records for key in one.held}
    parts = {key: part for one in records for key, part in one.parts.items()}
    ownership.restore(held, shares, unreadable=unreadable, records=given.get, parts=parts)


def _is_choice(one: Candidates) -> bool:
    return bool(one.shared) and not one.result.admin


def _ranked(one: Candidates, had: Mapping[Key, ResultKey]) -> list[Key]:
    """Return the keys of ``one``: first those that it had, last those that others of it had."""
    result = one.result
    place = ResultKey(result.request, result.pool, result.device, result.share)
    return sorted(one.keys, key=lambda key: 0 if had.get(key) == place else 1 + (key in had))


def names_of(driver: str, node: str, key: Key, resource: Resource | None) -> Iterator[Place]:
    """Yield the places by which a claim may have the device ``key``: a share also by the whole."""
    name, device_id = key
    pool = pool_name(node, name)
    ids = [device_id]
    device = resource.devices.get(device_id) if resource is not None else None
    if device is not None and device.share_of:
        ids.append(device.share_of)
    for one in ids:
        yield from dict.fromkeys(
            [(driver, pool, device_name(one)), (driver, pool, former_name(one))]
        )


def places_of(driver: str, records: Iterable[Record]) -> Mapping[Place, Collection[Key]]:
    """Return the devices in ``records`` by place; several where claims have shares of one."""
    found: dict[Place, set[Key]] = {}
    for record in records:
        for device in record.devices:
            found.setdefault((driver, device.pool, device.name), set()).add(device.key)
    return found


def claimed_places(driver: str, records: Iterable[Record]) -> Collection[ClaimedPlace]:
    """Return the places that claims have in ``records``, each with the claim's name."""
    return {
        ((driver, device.pool, device.name), record.claim[:2])
        for record in records
        for device in record.devices
    }
