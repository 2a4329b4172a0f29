"""A tracker of what pods hold that asks no kubelet, and so admits everything."""

from pathlib import Path

from deviceplugin._attribution.checkpoint import Checkpoint
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import PodResources
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._telemetry.metrics import Metrics

_NOWHERE = Path("/nowhere")


class IdleTracker(HoldingsTracker):
    def __init__(self) -> None:
        super().__init__(
            PodResources(_NOWHERE / "kubelet.sock", lambda _method, _code: None),
            AttributionTiming.of(30.0),
            resources=dict,
            metrics=Metrics(),
            ownership=Ownership(),
            checkpoint=Checkpoint(_NOWHERE),
        )
