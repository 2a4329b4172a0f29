"""What a driver reports about the health of its devices, which pods show in their status."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from deviceplugin._attribution.ownership import OfferState, Ownership
from deviceplugin._dra.claims.record import Record
from deviceplugin._dra.naming import former_name, pool_name
from deviceplugin._dra.shares import PoolNames, names_in
from deviceplugin._inventory.published import Resource
from deviceplugin.model import Health

Status = Literal["healthy", "unhealthy", "unknown"]


class DeviceHealth(NamedTuple):
    """The health of one device, by its name in the slices."""

    pool: str
    device: str
    status: Status
    message: str
    """For people; empty if there is nothing to say."""


class HealthReport:
    """The devices that claims have or may get.

    Args:
        node: The name of the node.
        resources: Returns the resources of this process, by name.
        ownership: Says which devices are offered.
        records: Returns the records of claims, by uid.
        discovered: Returns whether all plugins have discovered their devices at least once.
    """

    def __init__(
        self,
        node: str,
        *,
        resources: Callable[[], Mapping[str, Resource]],
        ownership: Ownership,
        records: Callable[[], Mapping[str, Record]],
        discovered: Callable[[], bool],
    ) -> None:
        self._node = node
        self._resources = resources
        self._ownership = ownership
        self._records = records
        self._discovered = discovered
        self._stopping = False

    def stop(self) -> None:
        """From now on, report devices that need this process as unhealthy."""
        self._stopping = True

    def read(self) -> list[DeviceHealth]:
        """Return the health of all devices now, ordered by name.

        A device of a claim is among them even if it is gone: the kubelet would go on showing the
        last health that it was told.
        """
        complete = self._discovered()  # before the resources are read
        claimed = {
            (one.pool, one.name) for record in self._records().values() for one in record.devices
        }
        found = {(one.pool, one.device): one for one in self._present(claimed)}
        for place in claimed - found.keys():
            found[place] = _absent(place, complete=complete)
        return [found[place] for place in sorted(found)]

    def _present(self, claimed: Collection[tuple[str, str]]) -> Iterator[DeviceHealth]:
        for resource in self._resources().values():
            pool = pool_name(self._node, resource.name)
            stopped = self._stopping and resource.plugin.needs_process
            states = self._ownership.offered(resource)
            devices = {device_id: state.device for device_id, state in states.items()}
            names, former = names_in(devices), names_in(devices, former_name)
            places = {
                name: ids for name, ids in _places(former).items() if (pool, name) in claimed
            } | _places(names)
            shares = {one for ids in names.shared.values() for one in ids}
            for name, ids in places.items():
                # A share is known by the device that it is of, unless a claim has it by its own.
                is_known = name in names.shared or ids[0] not in shares
                if (is_known and states[ids[0]].offered) or (pool, name) in claimed:
                    yield _health(pool, name, [states[one] for one in ids], stopped=stopped)


def _places(names: PoolNames) -> dict[str, Sequence[str]]:
    return {name: (one,) for name, one in names.devices.items()} | dict(names.shared)


def _health(pool: str, name: str, states: Sequence[OfferState], *, stopped: bool) -> DeviceHealth:
    """Return the health of a device; of one that is shared, that of its healthiest share."""
    state = min(states, key=lambda one: (not one.device.health, bool(one.taint)))
    health = Health.unhealthy("its plugin has stopped") if stopped else state.device.health
    status: Status = "healthy" if health else "unhealthy"
    return DeviceHealth(pool, name, status, health.reason or state.reason)


def _absent(place: tuple[str, str], *, complete: bool) -> DeviceHealth:
    if complete:
        return DeviceHealth(*place, "unhealthy", "the device is gone")
    return DeviceHealth(*place, "unknown", "not known yet: devices are still being discovered")
