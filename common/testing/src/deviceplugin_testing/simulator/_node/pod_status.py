"""The status of a pod as its kubelet reports it to the API server."""

from collections.abc import Iterator
from typing import Any

from deviceplugin_testing.simulator._kubelet.kubelet import SimulatedKubelet
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
    entries = [*_of_plugins(plugins.get(container.name, {}))]
    for name, devices in health.get(container.name, {}).items():
        resources = [
            {"resourceID": one.resource_id, "health": one.health}
            | ({"message": one.message} if one.message else {})
            for one in devices
        ]
        entries.append({"name": name, "resources": resources})
    return {"allocatedResourcesStatus": entries} if entries else {}


def _of_plugins(resources: Any) -> Iterator[dict[str, Any]]:
    for resource, devices in resources.items():
        listed = [{"resourceID": id_, "health": health} for id_, health in devices.items()]
        yield {"name": resource, "resources": listed}
