"""The devices of this node that claims name by pool and device."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.claims.results import Result
from deviceplugin._dra.naming import former_name, pool_name
from deviceplugin._dra.shares import PoolNames, names_in
from deviceplugin._inventory.published import Resource
from deviceplugin.errors import AllocationError, UnhealthyDeviceError, UnknownDeviceError
from deviceplugin.model import Device


@dataclass(frozen=True, slots=True)
class Located:
    """A result of a claim, and a device that it means."""

    result: Result
    resource: Resource
    device: Device


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
            yield Located(self.result, self.resource, by_id[device_id])

    @property
    def keys(self) -> Sequence[Key]:
        """The resource and the id of each device."""
        return [(self.resource.name, device.id) for device in self.devices]


class Locator:
    """Finds devices of ``node``. Thread-safe.

    Args:
        node: The name of the node.
        resources: Returns the resources of this process, by name.
        discovered: Returns whether all plugins have discovered their devices at least once.
    """

    def __init__(
        self,
        node: str,
        resources: Callable[[], Mapping[str, Resource]],
        discovered: Callable[[], bool],
    ) -> None:
        self._node = node
        self._resources = resources
        self._discovered = discovered
        self._names: dict[str, tuple[Mapping[str, Device] | None, *tuple[PoolNames, ...]]] = {}
        """By resource: the devices that the names were made of, and what the names stand for."""

    def resource(self, name: str) -> Resource | None:
        """Return the resource ``name``, if there is one now."""
        return self._resources().get(name)

    def find(self, results: Sequence[Result]) -> Sequence[Candidates]:
        """Return the devices that ``results`` name.

        Raises:
            AllocationError: The devices are not known yet.
            UnknownDeviceError: There is no such device.
            UnhealthyDeviceError: A device is unhealthy, and the claim tolerates no taint of it.
        """
        complete = self._discovered()  # before the resources are read
        pools = {pool_name(self._node, name): one for name, one in self._resources().items()}
        return [self._find(result, pools, complete=complete) for result in results]

    def _find(self, result: Result, pools: Mapping[str, Resource], *, complete: bool) -> Candidates:
        resource = pools.get(result.pool)
        found, shared = self._devices(resource, result.device) if resource else ([], "")
        if resource is None or not found:
            what = f"device {result.device} of pool {result.pool}"
            if not complete:
                raise AllocationError(f"not known yet: {what}: devices are still being discovered")
            raise UnknownDeviceError(f"unknown device: {what}")
        usable = [one for one in found if one.health or result.tolerant or result.admin]
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
