"""How many devices each protocol offers, for the metrics."""

from collections.abc import Iterable, Iterator

from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.protocol_metrics import Offered


def offered(ownership: Ownership, resources: Iterable[Resource]) -> Iterator[Offered]:
    """Yield what each protocol would give out now of ``resources``, as far as DRA concerns them."""
    leaving = ownership.leaving
    for resource in resources:
        if not ownership.concerns_dra(resource.name):
            continue
        devices = resource.devices
        withheld = ownership.withheld(resource.name, devices)
        states = ownership.offered(resource).values()
        yield Offered(
            resource.name,
            by_plugin=sum(one.id not in withheld and bool(one.health) for one in devices.values()),
            by_dra=sum(state.offered and not state.taint for state in states),
            leaving=sum((resource.name, device_id) in leaving for device_id in devices),
        )
