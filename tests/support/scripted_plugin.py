"""A plugin whose devices a test sets, and what several tests need to know of a process."""

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Condition, Event

from typing_extensions import override

import deviceplugin as dp
from patience import PATIENCE

RESOURCE = "example.com/thing"


class ScriptedPlugin(dp.Plugin):
    """Gives the devices that ``set`` was last called with, at once."""

    resource = RESOURCE

    def __init__(self, *devices: dp.Device | str, resource: str = RESOURCE) -> None:
        self.resource = resource
        self.hooks: list[tuple[str, str]] = []
        self._changed = Condition()
        self._version = 0
        self._devices: list[dp.Device] = []
        self._error: BaseException | None = None
        self.set(*devices)

    def set(self, *devices: dp.Device | str) -> None:
        with self._changed:
            self._devices = [dp.Device(d) if isinstance(d, str) else d for d in devices]
            self._error = None
            self._version += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._version += 1
            self._changed.notify_all()

    @override
    def discover(self) -> Iterable[dp.Device]:
        with self._changed:
            if self._error is not None:
                raise self._error
            return list(self._devices)

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        seen = 0
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda seen=seen: self._version != seen, 0.05)  # type: ignore[misc]
                if self._version == seen:
                    continue
                seen = self._version
            yield

    @override
    def start(self, resource: str) -> None:
        self.hooks.append(("start", resource))

    @override
    def stop(self, resource: str) -> None:
        self.hooks.append(("stop", resource))


class WaitingPlugin(ScriptedPlugin):
    """Allocates once it is told to go on."""

    def __init__(self, *devices: dp.Device | str, resource: str = RESOURCE) -> None:
        super().__init__(*devices, resource=resource)
        self.asked, self.go_on = Event(), Event()

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        self.asked.set()
        self.go_on.wait(PATIENCE)
        return super().allocate(devices)


@dataclass(frozen=True, slots=True)
class Unserved:
    """What a kubelet can be asked to register although nobody serves on its socket."""

    name: str
    resource_name: str = RESOURCE
    watched: bool = False
    was_watched: bool = False
    verdict: str | None = None

    def expect_kubelet(self) -> None:
        """Do nothing: no stream can be opened."""


def sick(device_id: str, reason: str = "out of order") -> dp.Device:
    return dp.Device(device_id, health=dp.Health.unhealthy(reason))


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
