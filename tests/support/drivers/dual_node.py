"""A node of a simulated cluster with a plugin that can offer its devices by both protocols."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

import pytest
from typing_extensions import override

import deviceplugin as dp
from cluster.dra_objects import RESOURCE, Objects
from deviceplugin._app import protocol_switch
from deviceplugin._app.host import Host
from deviceplugin._attribution import poll_schedule
from deviceplugin._config.settings import Settings
from deviceplugin._dra.slices import publisher
from deviceplugin.apiserver import ApiServer, _slices, _watch
from deviceplugin.plugin import Usage
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import (
    KubeletConfig,
    SimulatedCluster,
    SimulatedNode,
    double_bookings,
)
from patience import PATIENCE, eventually
from scripted_plugin import ScriptedPlugin

NODE: Final = "n1"
IDS: Final = ("gary", "gerd", "gina")
_QUICK: Final = timedelta(seconds=0.1)
_POLL: Final = timedelta(seconds=0.2)
_WAITS: Final = (
    (protocol_switch, "_STEP"),
    (publisher, "_FIRST_WAIT"),
    (publisher, "_SPREAD"),
    (_watch, "_FIRST_WAIT"),
    (_slices, "_SPREAD"),
)
"""Seconds that a process waits, and that a test need not."""


class Gophers(ScriptedPlugin):
    """Has hooks for starts of containers and for what they use, as few plugins do."""

    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        self.hooks.append(("pre_start", ",".join(device.id for device in devices)))

    @override
    def usage(self) -> Usage:
        return {holder[:5]: {"holes": 1} for holder in self.holders()}


def gopher(name: str) -> dp.Device:
    return dp.Device(name, nodes=[dp.DeviceNode(f"/dev/{name}")])


class DualNode:
    """A cluster with one node, its kubelet, and a plugin in ``root``, which starts with ``start``.

    A DeviceClass gives pods that ask for the resource devices of DRA if the node has no others. The
    kubelet forgets a lost resource after ``stop_grace`` seconds. ``options`` are of the node.
    """

    plugin: ScriptedPlugin

    def __init__(
        self, root: Path, stop_grace: float = 300.0, sync_frequency: float = 60.0, **options: Any
    ) -> None:
        self._stop_grace, self._sync_frequency = stop_grace, sync_frequency
        self._options = options
        self.plugin = Gophers(*map(gopher, IDS), resource=RESOURCE)
        self._root = root
        self._stack = ExitStack()
        self.host: Host | None = None

    def __enter__(self) -> Self:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        for module, name in _WAITS:
            patch.setattr(module, name, 0.1)
        patch.setattr(poll_schedule, "_LISTS", 2)
        for name in ("cdi", "plugins"):
            (self._root / name).mkdir()
        self.cluster = self._stack.enter_context(SimulatedCluster())
        self.cluster.add_node(NODE)
        self.make = Objects(self.cluster)
        self.make.device_class(extendedResourceName=RESOURCE)
        config = KubeletConfig(
            dra=True,
            watch_interval=0.05,
            sync_interval=0.05,
            stop_grace=self._stop_grace,
            sync_frequency=self._sync_frequency,
            cdi_dirs=(self._root / "cdi",),
        )
        api = ApiServer(self.cluster.url)
        self.node = self._stack.enter_context(
            SimulatedNode(
                self._root,
                api,
                NODE,
                interval=0.05,
                status_interval=0.1,
                config=config,
                **self._options,
            )
        )
        self.kubelet = self.node.kubelet
        self.kubelet.run(PLUGIN_POD)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()

    def settings(self, **changes: Any) -> Settings:
        given: dict[str, Any] = {
            "plugin_dir": self.kubelet.plugin_dir,
            "registry_dir": self.kubelet.registry_dir,
            "pod_resources_socket": self.kubelet.pod_resources_socket,
            "pod_resources_interval": _POLL,
            "http_address": "off",
            "discovery_interval": _QUICK,
            "poll_interval": _QUICK,
            "vanished_grace": _QUICK,
            "node_name": NODE,
            "cdi_dir": self._root / "cdi",
            "driver_dir": self._root / "plugins",
            "api_server": self.cluster.url,
        }
        return Settings(**given | changes)

    def start(self, **changes: Any) -> None:
        """Start the process of the plugin."""
        self.host = host = Host([self.plugin], self.settings(**changes))
        self._thread = threading.Thread(target=host.run, name="host")
        self._thread.start()

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self.host is not None:
            self.host.stop()
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive()
            self.host = None

    def switch(self, protocol: Any) -> None:
        assert self.host
        self.host.check_protocol(protocol)
        self.host.offer_by(protocol)

    # What can be seen.

    def by_plugin(self) -> set[str]:
        """What the kubelet would give out."""
        return set(self.kubelet.healthy(RESOURCE))

    def by_dra(self) -> set[str]:
        """What the scheduler may give to claims."""
        slices = self.cluster.list("ResourceSlice")
        devices = [one for each in slices for one in each["spec"].get("devices", ())]
        return {one["name"] for one in devices if not one.get("taints")}

    def allocatable(self) -> int:
        """What the scheduler believes of the node, which the kubelet reports a while later."""
        node = self.cluster.get("Node", NODE)
        assert node
        status = node["status"]
        return int(status.get("allocatable", {}).get(RESOURCE, "0"))

    def wait_for(self, *, plugin: set[str], dra: set[str]) -> None:
        def offers() -> tuple[set[str], set[str], int]:
            return self.by_plugin(), self.by_dra(), self.allocatable()

        eventually(
            lambda: (plugin, dra, len(plugin)) == offers(),
            lambda: f"other offers than {offers()}; {self.host and self.host.troubles()}",
        )

    def run(self, name: str, count: int = 1) -> set[str]:
        """Run a pod that asks for the resource, and return its devices once it runs."""
        self.make.pod(name, {RESOURCE: str(count)})
        self.wait_for_phase(name, "Running")
        return self.held(name)

    def wait_for_phase(self, name: str, phase: str) -> None:
        eventually(
            lambda: self.make.status(name).get("phase") == phase,
            lambda: f"{name} to be {phase}: {self.cluster.get('Pod', name)}",
        )

    def held(self, name: str) -> set[str]:
        """What the container of a pod has."""
        state = self.kubelet.pod(self.node.pod(name))
        return {
            node.host_path.rpartition("/")[2]
            for options in state.started.values()
            if options
            for node in options.devices
        }

    def end(self, name: str) -> None:
        self.node.finish(name)

    def start_again(self, name: str) -> set[str]:
        """End the container of a pod, start it again, and return its devices."""
        pod = self.node.pod(name)
        self.kubelet.exit_container(pod, "main")
        self.kubelet.start_container(pod, "main")
        return self.held(name)

    def remove(self, name: str) -> None:
        """Delete a pod."""
        self.cluster.delete("Pod", name)

    def sockets(self) -> list[Path]:
        """The sockets by which the kubelet finds drivers."""
        return list(self.kubelet.registry_dir.iterdir())

    def check(self) -> None:
        """No device is in two running pods."""
        assert {} == double_bookings(self.kubelet.pods)
