"""A plugin that does everything right, in small parts: each bad one does one of them wrong."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import grpc

from deviceplugin.proto.v1beta1 import HEALTHY, KUBELET_SOCKET, UNHEALTHY
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import StubError, StubPlugin

LOOK = 0.2
"""Seconds between looks at what no event tells."""
PAUSE = 0.1
"""Seconds after a registration that did not last, and between looks for another kubelet."""

Identity = tuple[int, int] | None


def device(id_: str, health: str = HEALTHY) -> pb.Device:
    return pb.Device(ID=id_, health=health, topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=0)]))


class Good(StubPlugin):
    """Serves ``x.io/dev``; a file in the directory that is its argument makes a device ill."""

    name = "x.io/dev"
    ids: ClassVar[Sequence[str]] = ("a", "b", "c")
    sick: ClassVar[Sequence[str]] = ("sick",)
    retries_after = 1.0
    """Seconds between tries to register with the same kubelet, which may be gone."""

    def __init__(self) -> None:
        self.directory = Path(os.environ["DP_PLUGIN_DIR"])
        options = pb.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )
        super().__init__(self.directory, self.name, self.devices(), options=options)
        self.on_allocate = self.answer
        self.on_prefer = self.preference
        self.files = sorted(Path(sys.argv[2]).iterdir())
        self.stopping = threading.Event()
        self.losses = 0
        self.opened = 0

    # What it offers

    def devices(self) -> list[pb.Device]:
        return [
            *(device(id_) for id_ in self.ids),
            *(device(id_, UNHEALTHY) for id_ in self.sick),
        ]

    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        for id_ in ids:
            if id_ not in self.ids:
                raise StubError(f"not healthy: {id_}")
        return pb.AllocateResponse(container_responses=[self.container(ids)])

    def container(self, ids: list[str]) -> pb.ContainerAllocateResponse:
        null = "/dev/null"
        answer = pb.ContainerAllocateResponse(
            envs={"DEVICES": ",".join(ids)},
            devices=[pb.DeviceSpec(host_path=null, container_path=null, permissions="rw")],
            mounts=[pb.Mount(host_path="/usr/share", container_path="/opt/dev", read_only=True)],
            cdi_devices=[pb.CDIDevice(name=f"x.io/dev={id_}") for id_ in ids],
        )
        self.spoil(answer)
        return answer

    def spoil(self, answer: pb.ContainerAllocateResponse) -> None: ...

    def preference(
        self, request: pb.ContainerPreferredAllocationRequest
    ) -> pb.PreferredAllocationResponse:
        chosen = self.choose(
            list(request.available_deviceIDs),
            list(request.must_include_deviceIDs),
            request.allocation_size,
        )
        container = pb.ContainerPreferredAllocationResponse(deviceIDs=chosen)
        return pb.PreferredAllocationResponse(container_responses=[container])

    def choose(self, available: list[str], required: list[str], size: int) -> list[str]:
        return list(dict.fromkeys([*required, *sorted(available)]))[:size]

    # Its life

    def main(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        self.begin()
        while not self.stopping.is_set():
            self.start()
            registered = time.monotonic()
            if (kubelet := self.enlist()) is not None:
                self.enlisted()
                registered = time.monotonic()
                self.watch(kubelet)
                self.losses += 1
            self.pause(registered)
            self.stop()
        return self.end()

    def begin(self) -> None: ...

    def end(self) -> int:
        return 0

    def enlist(self) -> Identity:
        """Register and return the kubelet's identity; None if there is another one by now."""
        first = self.kubelet()
        while not self.stopping.is_set():
            self.opened, kubelet = self.calls.count("ListAndWatch"), self.kubelet()
            if kubelet != first:
                return None
            with suppress(grpc.RpcError):
                self.register()
                return kubelet
            if self.calls.count("ListAndWatch") > self.opened:
                return kubelet  # only its answer was lost, for example by a restart
            self.retry()
        return None

    def enlisted(self) -> None: ...

    def retry(self) -> None:
        """Wait for another kubelet, but not for long: each try wakes up many threads."""
        kubelet, end = self.kubelet(), time.monotonic() + self.retries_after
        while self.kubelet() == kubelet and time.monotonic() < end:
            if self.stopping.wait(PAUSE):
                return

    def pause(self, registered: float) -> None:
        if time.monotonic() - registered < 1:
            self.stopping.wait(PAUSE)

    def watch(self, kubelet: Identity) -> None:
        self._changed.until(lambda: self.calls.count("ListAndWatch") > self.opened, 2)
        while not self.stopping.is_set() and not self.lost(kubelet):
            self.look()
            self._changed.until(self.stream_lost, LOOK)

    def lost(self, kubelet: Identity) -> bool:
        return self.stream_lost() or self.socket_lost() or self.kubelet_lost(kubelet)

    def stream_lost(self) -> bool:
        return not self.streams

    def socket_lost(self) -> bool:
        return not self.socket.exists()

    def kubelet_lost(self, kubelet: Identity) -> bool:
        return self.kubelet() not in {None, kubelet}

    def kubelet(self) -> Identity:
        try:
            status = (self.directory / KUBELET_SOCKET).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def look(self) -> None:
        """Look whether the devices have changed."""
        files = sorted(Path(sys.argv[2]).iterdir())
        if files != self.files:
            self.files = files
            self.change()

    def change(self) -> None:
        first, *rest = self.ids
        self.update([device(first, UNHEALTHY), *map(device, [*rest, *self.sick])])
