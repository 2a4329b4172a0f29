"""Plugins that do not get over the loss of the kubelet, of a stream, or of a socket."""

import os
import sys
import time

import grpc
from tests.conformance.bad_plugins.good import Good, Identity, device

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb


class IgnoresRestarts(Good):
    def watch(self, _kubelet: Identity) -> None:
        self.stopping.wait()


class GivesUpAtTheSecondRestart(Good):
    def pause(self, registered: float) -> None:
        if self.losses == 2:
            self.stopping.wait()
        super().pause(registered)


class GivesUpAfterAWhile(Good):
    retries_after = 0.3
    refused = 0

    def retry(self) -> None:
        kubelet = self.kubelet()
        super().retry()
        self.refused += self.kubelet() == kubelet
        if self.losses and self.refused > 1:
            self.stopping.wait()

    def enlisted(self) -> None:
        self.refused = 0


class NeedsTheKubelet(Good):
    def begin(self) -> None:
        if self.kubelet() is None:
            sys.exit("no kubelet")


class StumblesOverItsSocket(Good):
    def begin(self) -> None:
        if self.socket.exists():
            sys.exit("address already in use")


class RandomIds(Good):
    def begin(self) -> None:
        self.update([device(f"a-{os.getpid()}")])


class IgnoresStreams(Good):
    def stream_lost(self) -> bool:
        return False


class RegistersLikeMad(Good):
    def watch(self, kubelet: Identity) -> None:
        self._changed.until(lambda: self.streams, 2)
        while not self.stopping.is_set() and not (self.socket_lost() or self.kubelet_lost(kubelet)):
            if self.stream_lost():
                try:
                    self.register()
                except grpc.RpcError:
                    return
                self._changed.until(lambda: self.streams, 0.05)
            self._changed.until(self.stream_lost, 0.1)


class IgnoresItsSocket(Good):
    def socket_lost(self) -> bool:
        return False


class IgnoresItsSocketAloud(Good):
    def socket_lost(self) -> bool:
        if super().socket_lost():
            os.write(2, b"who needs a socket\n")
            self.stopping.wait()
        return False


class EndsTheOldStreamLate(Good):
    def socket_lost(self) -> bool:
        if super().socket_lost():
            old, self._server = self._server, None
            self.start()
            self.register()
            time.sleep(0.5)
            if old is not None:
                old.stop(0).wait()
        return super().socket_lost()


class NoticesNoChange(Good):
    def change(self) -> None: ...


class DropsIds(Good):
    def change(self) -> None:
        self.update(list(map(device, self.ids[1:])))


class AnswersNothing(Good):
    """For exit statuses: it never comes up, and says so."""

    def begin(self) -> None:
        sys.exit("no device found\nreally: none")

    def devices(self) -> list[pb.Device]:
        return []
