"""A kubelet's PodResources socket that says what a test wants."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.podresources import podresources_pb2 as pb


class PodResources:
    """Answers ``List`` with one pod that holds ``held``: ids by resource; None is an error."""

    def __init__(self) -> None:
        self.held: dict[str, list[str]] | None = {}
        self.asked = 0

    def List(self, _request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.asked += 1
        if self.held is None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        devices = [
            pb.ContainerDevices(resource_name=resource, device_ids=[device_id])
            for resource, ids in (self.held or {}).items()
            for device_id in ids
        ]
        container = pb.ContainerResources(name="main", devices=devices)
        pod = pb.PodResources(name="pod", namespace="default", containers=[container])
        return pb.ListPodResourcesResponse(pod_resources=[pod])


@contextmanager
def pod_resources(socket: Path, **methods: Callable[..., Any]) -> Iterator[PodResources]:
    """Serve on ``socket``, with these methods besides."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    answers = PodResources()
    for name, method in methods.items():
        setattr(answers, name, method)
    lister = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    server = grpc.server(ThreadPoolExecutor(2), handlers=[rpc.service(lister, answers)])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield answers
    finally:
        server.stop(None).wait()
