"""Plugins that register wrongly."""

import sys
import threading
import time
from contextlib import suppress

import grpc
from tests.conformance.bad_plugins.good import Good, Identity

from deviceplugin.proto.v1beta1 import VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb


class NeverRegisters(Good):
    def enlist(self) -> Identity:
        self.stopping.wait()
        return None


class RegistersBeforeItServes(Good):
    def start(self) -> None:
        threading.Timer(1, super().start).start()

    def stop(self) -> None:
        time.sleep(1.2)
        super().stop()


class WrongVersionFirst(Good):
    def begin(self) -> None:
        self.start()
        with suppress(grpc.RpcError):
            self.register(version="v1alpha1")
        self.stop()


class WrongNameFirst(Good):
    def begin(self) -> None:
        self.start()
        self.resource = "X.io/dev"
        with suppress(grpc.RpcError):
            self.register()
        self.resource = self.name
        self.stop()


class NamesItsSocketOddly(Good):
    """As some plugins in Go do, whose sockets end in base64; a kubelet takes it."""

    def begin(self) -> None:
        self.socket = self.directory / "gdp-eC5pby9kZXY=-1.sock"


class EndpointWithPath(Good):
    def register(
        self,
        *,
        version: str = VERSION,
        endpoint: str | None = None,
        timeout: float | None = 15.0,
    ) -> None:
        super().register(version=version, endpoint=endpoint or "./stub.sock", timeout=timeout)


class EndpointElsewhere(Good):
    def begin(self) -> None:
        self.start()
        with suppress(grpc.RpcError):
            self.register(endpoint="no%such")
        sys.exit("refused")


class SlowOptions(Good):
    def GetDevicePluginOptions(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        time.sleep(0.8)
        return super().GetDevicePluginOptions(request, context)


class RegistersTwice(Good):
    def enlisted(self) -> None:
        if not self.losses:
            self.register()
