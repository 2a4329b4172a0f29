"""A node of a cluster: a simulated kubelet that runs its pods, and reports their status."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self

from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import DevicePluginError
from deviceplugin_testing.simulator._errors import KubeletCrashed, KubeletStopped
from deviceplugin_testing.simulator._host.claim_source import ApiCluster
from deviceplugin_testing.simulator._host.config import KubeletConfig
from deviceplugin_testing.simulator._kubelet.kubelet import SimulatedKubelet
from deviceplugin_testing.simulator._pods.manifest import pod_of
from deviceplugin_testing.simulator._pods.pod import Container, Pod, PodState


def pod_status(kubelet: SimulatedKubelet, pod: Pod) -> dict[str, Any]:
    """Return the ``status`` of a pod, as far as it concerns devices."""
    state = kubelet.pod(pod)
    status: dict[str, Any] = {"phase": state.phase}
    if state.reason:
        status |= {"reason": state.reason, "message": state.message}
    health = {} if state.terminal else kubelet.dra.health(pod)
    plugins = {} if state.terminal else kubelet.device_health(pod)
    status["containerStatuses"] = [
        _container(state, container) | _allocated(container, health, plugins)
        for container in pod.containers
    ]
    return status


def _container(state: PodState, container: Container) -> dict[str, Any]:
    name = container.name
    if name in state.running:
        current: dict[str, Any] = {"running": {}}
    elif name in state.started and name not in state.waiting:
        current = {"terminated": {"exitCode": 0}}
    else:
        current = {"waiting": {"reason": "ContainerCreating", "message": state.event}}
    return {"name": name, "ready": name in state.running, "state": current}


def _allocated(container: Container, health: Any, plugins: Any) -> dict[str, Any]:
    entries = [
        (resource, [{"resourceID": id_, "health": found} for id_, found in devices.items()])
        for resource, devices in plugins.get(container.name, {}).items()
    ]
    for name, devices in health.get(container.name, {}).items():
        listed = [
            {"resourceID": one.resource_id, "health": one.health}
            | ({"message": one.message} if one.message else {})
            for one in devices
        ]
        entries.append((name, listed))
    found = [{"name": name, "resources": listed} for name, listed in entries]
    return {"allocatedResourcesStatus": found} if found else {}


_GONE: Final = 404


class SimulatedNode:
    """A node ``name``, whose kubelet reads and writes by ``api``.

    ``with SimulatedNode(root, ApiServer(url), "n1") as node: ...`` starts the kubelet, and runs
    pods until the end. The node object must exist. Containers do nothing; ``finish`` ends a pod.

    Args:
        root: The kubelet's directory.
        api: The API server, a ``deviceplugin.apiserver.ApiServer``.
        name: The name of the node.
        interval: Seconds between looks at the API server; with None, only ``step()`` looks.
        status_interval: Seconds between updates of the node object, by the kubelet's clock.
        config: The kubelet's configuration; its cluster and node name are set.
        options: Further arguments of ``SimulatedKubelet``.
    """

    def __init__(
        self,
        root: Path,
        api: Any,
        name: str,
        *,
        interval: float | None = 0.1,
        status_interval: float = 10.0,
        config: KubeletConfig | None = None,
        **options: Any,
    ) -> None:
        config = replace(config or KubeletConfig(), cluster=ApiCluster(api), node_name=name)
        self.name = name
        self.kubelet = SimulatedKubelet(root, config=config, **options)
        """The kubelet, which may be stopped and started at any time."""
        self.problem = ""
        """Why the last request of the API server failed; empty if it did not."""
        self._api = api
        self._interval = interval
        self._status_interval = status_interval
        self._clock: Callable[[], float] = self.kubelet.clock
        self._status_at = self._clock()
        self._pods: dict[str, Pod] = {}
        self._reported: dict[str, Mapping[str, Any]] = {}
        self._waiter = Waiter()
        self._thread = Thread(target=self._run, name=f"node-{name}", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the kubelet, and run pods from now on. A node can be started once."""
        self.kubelet.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop for good. Idempotent."""
        self._waiter.end()
        if self._thread.is_alive():
            self._thread.join()
        self.kubelet.stop()

    def _run(self) -> None:
        if self._interval is not None:
            for _ in self._waiter.ticks(self._interval):
                self.step()

    def step(self) -> None:
        """Run new pods, end deleted ones, and report what has changed.

        Without a running kubelet, or an API server that answers, it does nothing.
        """
        if not self.kubelet.running:
            return
        try:
            self._follow()
            self.kubelet.sync()
            self._report()
        except (KubeletStopped, KubeletCrashed):
            return
        except DevicePluginError as error:
            self.problem = str(error)
        else:
            self.problem = ""

    def finish(self, name: str, phase: str = "Succeeded", namespace: str = "default") -> None:
        """End the containers of a pod by themselves; raise ``LookupError`` if it is not here."""
        self.kubelet.terminate(self.pod(name, namespace), phase)

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """Return a pod of this node as its kubelet has it; raise ``LookupError`` without it."""
        for pod in list(self._pods.values()):
            if (pod.name, pod.namespace) == (name, namespace):
                return pod
        raise LookupError(f"the node {self.name} has no pod {namespace}/{name}")

    # Pods

    def _follow(self) -> None:
        page = self._api.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self.name}"})
        found = {item["metadata"]["uid"]: item for item in page.items}
        for uid in self._pods.keys() - found.keys():
            self.kubelet.delete(self._pods.pop(uid))
            self._reported.pop(uid, None)
        for uid, item in found.items():
            self._take(uid, item)

    def _take(self, uid: str, item: Mapping[str, Any]) -> None:
        known = self._pods.get(uid)
        deleted = "deletionTimestamp" in item["metadata"]
        if known is None:
            if deleted or item["status"].get("phase") in {"Succeeded", "Failed"}:
                self._remove(item) if deleted else None
                return
            pod = self._pods[uid] = pod_of(item)
            self.kubelet.launch(pod)
        elif deleted:
            self._end(known, item)

    def _end(self, pod: Pod, item: Mapping[str, Any]) -> None:
        state = self.kubelet.pod(pod)
        if state.terminal and item["status"].get("phase") == state.phase:
            self._unless_gone(lambda: self._api.delete(_path(pod), uid=pod.uid))
        elif not state.terminal and not state.ending:
            self.kubelet.terminate(pod)

    def _remove(self, item: Mapping[str, Any]) -> None:
        """Delete a pod that this kubelet never ran."""
        pod = pod_of(item)
        status = {"status": {"phase": "Failed"}}
        self._unless_gone(lambda: self._api.merge(f"{_path(pod)}/status", status))
        self._unless_gone(lambda: self._api.delete(_path(pod), uid=pod.uid))

    def _unless_gone(self, request: Callable[[], object]) -> None:
        try:
            request()
        except DevicePluginError as error:
            if getattr(error, "status", 0) != _GONE:
                raise

    # Reports

    def _report(self) -> None:
        self._report_node()
        for uid, pod in list(self._pods.items()):
            status = pod_status(self.kubelet, pod)
            if self._reported.get(uid) != status:
                self._report_pod(pod, status)
                self._reported[uid] = status

    def _report_pod(self, pod: Pod, status: Mapping[str, Any]) -> None:
        self._unless_gone(lambda: self._api.merge(f"{_path(pod)}/status", {"status": status}))

    def _report_node(self) -> None:
        now = self._clock()
        if now < self._status_at:
            return
        self._status_at = now + self._status_interval
        self.kubelet.tick()
        node = self.kubelet.node
        status = {
            key: {name: str(count) for name, count in amounts.items()}
            for key, amounts in (("capacity", node.capacity), ("allocatable", node.allocatable))
        }
        if self._reported.get("") != status:
            self._api.merge(f"/api/v1/nodes/{self.name}/status", {"status": status})
            self._reported[""] = status


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
