"""A plugin's process on a kubelet whose clock the test holds."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from deviceplugin._app.host import Host
from deviceplugin.plugin import Plugin
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.fixture._node import Kubelet as FixtureKubelet
from kubelets.equipped import Kubelet
from patience import eventually
from served.cluster_node import running


class PluginNode:
    """The process can be ended and started."""

    def __init__(self, kubelet: Kubelet, plugin: Plugin, root: Path) -> None:
        self.kubelet, self._plugin = kubelet, plugin
        made = FixtureKubelet(root)
        made.simulated = kubelet
        self._settings = made.settings()
        self._running: AbstractContextManager[Host] | None = None

    def start(self, *, capacity: int) -> None:
        """Start the process, and wait until the node has so many devices, all healthy."""
        self._running = running(Host([self._plugin], self._settings))
        self.host = self._running.__enter__()
        self.wait(capacity, capacity)

    def stop(self) -> None:
        """End the process, if it runs, and wait until the kubelet knows."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None
            self.kubelet.wait(lambda: not self.kubelet.registered, what="the end of the plugin")

    def wait(self, capacity: int, allocatable: int) -> None:
        """Wait until the node object has these numbers."""

        def found() -> tuple[int, int]:
            self.kubelet.tick()
            (resource,) = self.kubelet.resources or {""}
            return self.kubelet.capacity(resource), self.kubelet.allocatable(resource)

        eventually(lambda: (capacity, allocatable) == found(), lambda: f"other than {found()}")

    def listed(self) -> list[tuple[str, str, list[str]]]:
        """Return pod, container and devices of all other pods, as the pod resources API has it."""
        return [
            (pod.name, container.name, sorted(one.device_ids[0] for one in container.devices))
            for pod in self.ask("List", pb.ListPodResourcesRequest()).pod_resources
            if pod.name != PLUGIN_POD.name
            for container in pod.containers
        ]

    def ask(self, method: str, request: Any) -> Any:
        """Call the pod resources API."""
        return self.kubelet.agent[method](request)
