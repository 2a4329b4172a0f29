"""A pod of the stand-in for a cluster: its containers, one after the other, and its status."""

import shutil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from cluster.container import Container, View
from cluster.kinds import Object
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.simulator import ContainerStartError, PodNotReadyError
from deviceplugin_testing.simulator._node import pod_status
from deviceplugin_testing.simulator._pods.manifest import pod_of

if TYPE_CHECKING:
    from cluster.node import ProcessNode

NAME = "node-1"
BACK_OFF = 10.0
"""Seconds until a container that has ended is started again."""
_FOLLOWING = """#!/bin/sh
# What is in /dev here are links to device nodes.
exec {} -L "$@"
"""


class WaitingError(Exception):
    """A pod cannot go on; the reason is as in its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RunningPod:
    """A pod of the node."""

    def __init__(self, node: "ProcessNode", root: Path, pod: Object) -> None:
        self._node, self._root, self._pod = node, root, pod
        self._spec, metadata = pod["spec"], pod["metadata"]
        self._namespace = metadata["namespace"]
        self._known = {
            "spec.nodeName": NAME,
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
        }
        ports = [port for one in self._spec["containers"] for port in one.get("ports", ())]
        self._ports = {one["containerPort"]: one.get("hostPort") or free_port() for one in ports}
        inits = self._spec.get("initContainers", [])
        self._wanted = pod_of(pod)
        self.containers: dict[str, Container] = {}
        self._specs = {one["name"]: one for one in [*inits, *self._spec["containers"]]}
        self._first = [one["name"] for one in inits]
        self._waiting: dict[str, Object] = {}
        self._restarts = dict.fromkeys(self._specs, 0)
        self._ended: dict[str, float] = {}
        self._rejected: Object | None = None
        outcome = node.kubelet.admit(self._wanted)
        if not outcome:
            self._rejected = {
                "phase": "Failed",
                "reason": outcome.reason,
                "message": outcome.message,
            }
            node.tell(pod, outcome.reason, outcome.event)

    def step(self) -> Object:
        """Start what can be started, and return the status."""
        if self._rejected is not None:
            return self._rejected
        for name, spec in self._specs.items():
            before = self._first[: self._first.index(name)] if name in self._first else self._first
            if all(self._has_ended_well(one) for one in before):
                self._start(name, spec)
        return self._status()

    def _has_ended_well(self, name: str) -> bool:
        return name in self.containers and self.containers[name].exit_code == 0

    def _start(self, name: str, spec: Object) -> None:
        found = self.containers.get(name)
        if found is not None and (found.exit_code is None or not self._restarts_now(name)):
            return
        try:
            made = self._make(spec)
            made.start(self._node.kubelet.start_container(self._wanted, name))
        except WaitingError as error:
            self._wait(name, error.reason, str(error))
        except PodNotReadyError as error:
            self._wait(name, "ContainerCreating", str(error))
        except (OSError, ContainerStartError) as error:
            self._wait(name, "RunContainerError", str(error))
        else:
            self.containers[name] = made
            self._waiting.pop(name, None)

    def _restarts_now(self, name: str) -> bool:
        """Tell whether what has ended is started again now."""
        if self._spec["restartPolicy"] == "Never" or (
            self._has_ended_well(name) and name in self._first
        ):
            return False
        ended = self._ended.setdefault(name, monotonic())
        if monotonic() - ended < BACK_OFF:
            self._waiting[name] = {"reason": "CrashLoopBackOff", "message": "back-off restarting"}
            return False
        del self._ended[name]
        self._restarts[name] += 1
        return True

    def _wait(self, name: str, reason: str, message: str) -> None:
        self._waiting[name] = {"reason": reason, "message": message}
        creating = reason == "ContainerCreating"
        self._node.tell(self._pod, "FailedMount" if creating else "Failed", message)

    def _make(self, spec: Object) -> Container:
        image = self._node.image(spec)
        volumes = {one["name"]: one for one in self._spec.get("volumes", ())}
        mounts = {
            one["mountPath"]: self._node.volume(
                self._namespace, volumes[one["name"]], self._root / "volumes" / one["name"]
            )
            for one in spec.get("volumeMounts", ())
        }
        root = self._root / spec["name"]
        for folder in ("bin", "dev"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name in ("find", "ls"):
            (root / "bin" / name).write_text(_FOLLOWING.format(shutil.which(name)))
            (root / "bin" / name).chmod(0o755)
        view = View(root, self._node.root, mounts, self._ports)
        for one in spec.get("volumeMounts", ()):
            if "configMap" in volumes[one["name"]]:
                for file in mounts[one["mountPath"]].iterdir():
                    file.write_text(view.file_here(file.read_text()))
        return Container(spec, image, view, self._known, self._node.environment)

    def _status(self) -> Object:
        codes = [found.exit_code for found in self._own()]
        phase = "Running" if len(codes) == len(self._spec["containers"]) else "Pending"
        if phase == "Running" and self._spec["restartPolicy"] == "Never" and None not in codes:
            phase = "Failed" if any(codes) else "Succeeded"
            self._node.kubelet.terminate(self._wanted, phase)
        told = pod_status(self._node.kubelet, self._wanted)["containerStatuses"]
        health = "allocatedResourcesStatus"
        statuses = [
            {**self._status_of(one["name"]), **({health: one[health]} if health in one else {})}
            for one in told
        ]
        ready = str(all(one["ready"] for one in statuses))
        return {
            "phase": phase,
            "podIP": "127.0.0.1",
            "containerStatuses": statuses,
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "ContainersReady", "status": ready},
                {"type": "Ready", "status": ready},
            ],
        }

    def _own(self) -> list[Container]:
        return [found for name, found in self.containers.items() if name not in self._first]

    def _status_of(self, name: str) -> Object:
        found = self.containers.get(name)
        code = None if found is None else found.exit_code
        state: Object = {"waiting": self._waiting.get(name, {"reason": "ContainerCreating"})}
        if found is not None and code is None:
            state = {"running": {"startedAt": self._pod["metadata"]["creationTimestamp"]}}
        elif code is not None and name not in self._waiting:
            reason = "Error" if code else "Completed"
            state = {"terminated": {"exitCode": code, "reason": reason}}
        started = f"stand-in://{self._pod['metadata']['uid']}/{name}/{self._restarts[name]}"
        return {
            "name": name,
            "image": self._specs[name]["image"],
            "imageID": "",
            "containerID": "" if found is None else started,
            "ready": found is not None and found.is_ready(),
            "restartCount": self._restarts[name],
            "state": state,
        }

    def stop(self, grace: float) -> None:
        for container in self.containers.values():
            container.stop(grace)
        self._node.kubelet.delete(self._wanted)
        shutil.rmtree(self._root, ignore_errors=True)
