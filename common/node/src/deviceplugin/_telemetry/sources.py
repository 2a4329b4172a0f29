"""Further metrics, whose collectors the first scrape makes: only then are they imported."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from deviceplugin._telemetry.metrics import Source
from deviceplugin.plugin import Plugin

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from deviceplugin._telemetry.protocol_metrics import Offered


def offers(offered: "Callable[[], Iterable[Offered]]") -> Source:
    """Return the metrics of which protocol offers how many devices."""

    def make(_taken: Collection[str]) -> "Collector":
        from deviceplugin._telemetry.protocol_metrics import Offers

        return Offers(offered)

    return make


def additions(
    plugins: Callable[[], Mapping[str, Plugin]], skipped: Callable[[str, int], None]
) -> Source:
    """Return the metrics that ``plugins`` add. ``skipped`` gets how many samples were dropped."""

    def make(taken: Collection[str]) -> "Collector":
        from deviceplugin._telemetry.plugin_metrics import Additions

        return Additions(plugins, taken, skipped)

    return make
