"""The names that devices have for the kubelet and the scheduler: driver, pool, device."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from deviceplugin._attribution.claim_holders import ClaimedPlace, Place
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.claims.record import Record
from deviceplugin._dra.naming import device_name, former_name, pool_name
from deviceplugin._inventory.published import Resource


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
