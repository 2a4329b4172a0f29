"""A kubelet that misbehaves as a test wants."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE


class OddKubelet:
    """A registration service that does what the test says, and nothing else."""

    def __init__(self, path: Path, answer: Callable[[Any, grpc.ServicerContext], Any]) -> None:
        self.asked: list[str] = []
        self.changed = threading.Condition()
        self._answer = answer
        service = pb.DESCRIPTOR.services_by_name["Registration"]
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[rpc.service(service, self)])
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def Register(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        with self.changed:
            self.asked.append(request.resource_name)
            self.changed.notify_all()
        return self._answer(request, context)

    def wait_asked(self, times: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= times, PATIENCE)

    def stop(self) -> None:
        self._server.stop(None).wait()


@contextmanager
def odd_kubelet(
    kubelet: Kubelet, answer: Callable[[Any, grpc.ServicerContext], Any]
) -> Iterator[OddKubelet]:
    kubelet.simulated.stop()
    odd = OddKubelet(kubelet.simulated.kubelet_socket, answer)
    try:
        yield odd
    finally:
        odd.stop()


_SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]


@contextmanager
def stream(socket: Path) -> Iterator[Any]:
    """Open one more stream, which ends with the context. It waits for who will serve there."""
    with rpc.connect(socket) as channel:
        yield rpc.calls(channel, _SERVICE)["ListAndWatch"](pb.Empty(), wait_for_ready=True)
