"""How authors use the public API. Not run: checked by mypy and by pyright in strict mode."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import assert_type

from prometheus_client.core import GaugeMetricFamily, Metric
from typing_extensions import override

import deviceplugin as dp


@dataclass(frozen=True, kw_only=True)
class CameraSettings(dp.Settings):
    directory: Path = Path("/dev")
    """Where the cameras are."""


class CameraPlugin(dp.Plugin):
    resource = "example.com/camera"
    exclusive = True

    def __init__(self, settings: CameraSettings) -> None:
        self.directory = settings.directory
        self.watch_paths = [settings.directory]

    @override
    def discover(self) -> Iterable[dp.Device]:
        for path in self.directory.glob("video*"):
            device = dp.Device.from_path(path)
            yield replace(
                device, envs={"CAMERA": str(path)}, mounts=[dp.Mount("/usr/lib/firmware")]
            )
        yield dp.Device(
            "spare",
            resource="example.com/spare",
            health=dp.Health.unhealthy("no lens"),
            topology=dp.Topology([0, 1]),
            nodes=[dp.DeviceNode("/dev/video9", permissions="r")],
            cdi_names=["example.com/camera=9"],
            attributes={"lens": "none", "pixels": 640, "color": True, "f": dp.Version("1.2.3")},
            capacity={"memory": "2Gi", "lenses": 3},
        )

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        if not all(device.health for device in devices):
            raise dp.UnhealthyDeviceError("look first", device_ids=[d.id for d in devices])
        return super().allocate(devices) + dp.Allocation(annotations={"count": str(len(devices))})

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return [*required, *available][:size]

    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        raise dp.AllocationError("not yet")

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        while not stop.wait(1):
            yield

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        assert_type(devices[0], dp.Device)

    @override
    def metrics(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("deviceplugin_camera_lenses", "Lenses.", value=1)

    @override
    def start(self, resource: str) -> None:
        assert_type(resource, str)

    @override
    def stop(self, resource: str) -> None:
        assert_type(resource, str)


@dataclass(frozen=True)
class LampParameters:
    percent: int = 100


class LampPlugin(dp.Plugin):
    resource = "example.com/lamp"
    parameters = LampParameters

    @override
    def discover(self) -> list[dp.Device]:
        return [dp.Device("lamp0")]

    @override
    def allocate_with(
        self, devices: Sequence[dp.Device], parameters: LampParameters
    ) -> dp.Allocation:
        return self.allocate(devices) + dp.Allocation(envs={"LAMP": str(parameters.percent)})


class PlainPlugin(dp.Plugin):
    @override
    def discover(self) -> list[dp.Device]:
        raise dp.DiscoveryError("nobody home")


def as_a_command() -> None:
    dp.main(CameraPlugin, settings=CameraSettings)


def two_as_a_command() -> None:
    dp.main(PlainPlugin, PlainPlugin)


def in_a_program() -> None:
    settings = CameraSettings(http_address="off")
    dp.run(CameraPlugin(settings), PlainPlugin(), settings=settings, stop=threading.Event())


def values() -> None:
    allocation = dp.Allocation(envs={"A": "1"}) + dp.Allocation(nodes=[dp.DeviceNode("/dev/null")])
    assert_type(allocation, dp.Allocation)
    assert_type(allocation.nodes, Sequence[dp.DeviceNode])
    assert_type(dp.Device("a").health, dp.Health)
