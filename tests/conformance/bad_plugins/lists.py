"""Plugins that list wrongly."""

import threading
import time
from collections.abc import Iterator

import grpc
from tests.conformance.bad_plugins.good import Good, Identity, device

from deviceplugin.proto.v1beta1 import HEALTHY
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb


class LateFirstList(Good):
    def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        if "ListAndWatch" not in self.calls:
            time.sleep(1.2)
        yield from super().ListAndWatch(request, context)


class IncompleteFirstList(Good):
    def begin(self) -> None:
        self.update([device("a")])

    def enlisted(self) -> None:
        self.wait(lambda: self.streams)
        self.stopping.wait(0.2)
        self.update(self.devices())


class Heartbeat(Good):
    def look(self) -> None:
        self.update(self.devices())


class DuplicateIds(Good):
    def devices(self) -> list[pb.Device]:
        return [*super().devices(), device("a")]


class Empty(Good):
    ids = ()


class LongId(Good):
    ids = ("a", 64 * "b")


class LowerCaseHealth(Good):
    def devices(self) -> list[pb.Device]:
        return [*super().devices(), device("d", HEALTHY.lower())]


class EmptyTopology(Good):
    def devices(self) -> list[pb.Device]:
        bare = pb.Device(ID="d", health=HEALTHY, topology=pb.TopologyInfo())
        return [*super().devices(), bare]


class TooLongList(Good):
    ids = [f"{number:063}" for number in range(55_000)]  # noqa: RUF012

    def watch(self, _kubelet: Identity) -> None:
        self.stopping.wait()


class FewStreams(Good):
    def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        if self.streams > 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more streams")
        yield from super().ListAndWatch(request, context)


class OneSenderForAllStreams(Good):
    def begin(self) -> None:
        self.sending = threading.Lock()

    def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        lists = super().ListAndWatch(request, context)
        while True:
            message = next(lists, None)
            if message is None:
                return
            with self.sending:
                yield message
