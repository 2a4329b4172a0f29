"""Asks a container runtime for pods and containers, over the socket on which the kubelet does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from containers import cri_runtime_pb2 as pb
from deviceplugin._platform import rpc

PATIENCE = 60
"""Seconds for anything: a runtime that takes longer hangs."""


@dataclass(frozen=True)
class Done:
    """What a command in a container has printed, and how it ended."""

    status: int
    output: str
    errors: str


class Runtime:
    """A container runtime. Every call has a limit, and raises ``grpc.RpcError`` if it fails."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket}")
        services = pb.DESCRIPTOR.services_by_name
        self._calls: Mapping[str, Any] = {
            **rpc.calls(self._channel, services["RuntimeService"]),
            **rpc.calls(self._channel, services["ImageService"]),
        }

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: Any, timeout: float = PATIENCE) -> Any:
        return self._calls[method](request, timeout=timeout)

    def is_ready(self) -> bool:
        """Tell whether containers can be made. A network for pods is not looked at."""
        try:
            status = self._call("Status", pb.StatusRequest(), 5).status
        except grpc.RpcError:
            return False
        return any(one.type == "RuntimeReady" and one.status for one in status.conditions)

    def has_image(self, name: str) -> bool:
        """Tell whether there is an image that a pod can name so."""
        asked = pb.ImageStatusRequest(image=pb.ImageSpec(image=name))
        return bool(self._call("ImageStatus", asked).HasField("image"))

    # Pods

    def run_pod(self, config: pb.PodSandboxConfig) -> str:
        """Start a pod without containers, and return its id."""
        return str(
            self._call("RunPodSandbox", pb.RunPodSandboxRequest(config=config)).pod_sandbox_id
        )

    def remove_pod(self, pod: str) -> None:
        """Kill whatever is left in a pod, and remove it and its containers."""
        self._call("StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=pod))
        self._call("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=pod))

    def pods(self) -> dict[str, str]:
        """Return the names of all pods, by id."""
        found = self._call("ListPodSandbox", pb.ListPodSandboxRequest()).items
        return {one.id: one.metadata.name for one in found}

    # Containers

    def start(self, pod: str, sandbox: pb.PodSandboxConfig, config: pb.ContainerConfig) -> str:
        """Create a container in a pod and start it, and return its id."""
        asked = pb.CreateContainerRequest(pod_sandbox_id=pod, config=config, sandbox_config=sandbox)
        made = self._call("CreateContainer", asked).container_id
        self._call("StartContainer", pb.StartContainerRequest(container_id=made))
        return str(made)

    def stop(self, container: str, grace: int = 0) -> None:
        """End a container: SIGTERM, and SIGKILL after ``grace`` seconds, at once if that is 0."""
        asked = pb.StopContainerRequest(container_id=container, timeout=grace)
        self._call("StopContainer", asked, PATIENCE + grace)

    def status(self, container: str) -> pb.ContainerStatus:
        asked = pb.ContainerStatusRequest(container_id=container)
        status: pb.ContainerStatus = self._call("ContainerStatus", asked).status
        return status

    def is_running(self, container: str) -> bool:
        return self.status(container).state == pb.CONTAINER_RUNNING

    def has_ended(self, container: str) -> bool:
        return self.status(container).state == pb.CONTAINER_EXITED

    def execute(self, container: str, *words: str, timeout: int = 20) -> Done:
        """Run a command in a container, with the container's user and rights."""
        asked = pb.ExecSyncRequest(container_id=container, cmd=words, timeout=timeout)
        answer = self._call("ExecSync", asked)
        return Done(answer.exit_code, answer.stdout.decode(), answer.stderr.decode())


def read_log(path: Path) -> str:
    """Return what a container printed: a runtime puts time, stream and a tag before each line."""
    text = []
    for line in path.read_text().splitlines():
        _, _, tag, said = line.split(" ", 3)
        text.append(said if tag == "P" else f"{said}\n")  # a part of a line, or its end
    return "".join(text)
