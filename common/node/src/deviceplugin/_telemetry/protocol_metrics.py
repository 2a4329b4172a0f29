"""The metrics of the protocols that offer devices."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override


class Offered(NamedTuple):
    """How many devices of one resource each protocol offers."""

    resource: str
    by_plugin: int
    by_dra: int
    leaving: int
    """Devices that the wanted protocol does not offer yet, because the other one did."""


class Offers(Collector):
    """Reports which protocol offers how many devices. ``source`` is called at each scrape."""

    def __init__(self, source: Callable[[], Iterable[Offered]]) -> None:
        self._source = source

    @override
    def collect(self) -> Iterator[Metric]:
        offered = GaugeMetricFamily(
            "deviceplugin_devices_offered",
            "Devices that a new pod may get, by protocol, if DRA concerns the resource.",
            labels=["resource", "protocol"],
        )
        leaving = GaugeMetricFamily(
            "deviceplugin_devices_leaving",
            "Devices that the wanted protocol does not offer yet, because the other one did.",
            labels=["resource"],
        )
        for each in self._source():
            offered.add_metric([each.resource, "device-plugin"], each.by_plugin)
            offered.add_metric([each.resource, "dra"], each.by_dra)
            leaving.add_metric([each.resource], each.leaving)
        yield from (offered, leaving)
