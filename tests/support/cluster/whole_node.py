"""A node of a simulated cluster, with a plugin in a process that can be killed and can switch."""

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from typing_extensions import override

import forked_process
from cluster.dra_objects import Objects
from cluster.things_plugin import FOLDER, RESOURCE, SHARES
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import ApiServer
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import (
    ContainerStartError,
    KubeletConfig,
    ManualClock,
    Observer,
    Pod,
    PodNotReadyError,
    RunOptions,
    SimulatedCluster,
    SimulatedNode,
    double_bookings,
)
from patience import PATIENCE, eventually

DRIVER: Final = "thing.example.com"
NODE: Final = "n1"
Protocol = Literal["device-plugin", "dra"]
_TICK: Final = 2.0
"""Seconds of the kubelet's clock that pass in a step; it reports its devices every 10 s."""


class Booked(Observer):
    """Sees each start of a container, and which devices two pods have then."""

    def __init__(self) -> None:
        self.node: SimulatedNode | None = None
        self.starts = 0
        self.doubled: list[Any] = []

    @override
    def started(self, pod: Pod, container: str, options: RunOptions | None) -> None:
        self.starts += 1
        if self.node is not None and (found := double_bookings(self.node.kubelet.pods)):
            self.doubled.append((pod.name, container, found))


class WholeNode:
    """See the module. ``step`` lets cluster and kubelet do what there is to do.

    The cluster's time is real; the kubelet's passes by ``step`` and ``clock``. ``root`` must be
    short, because sockets are below it. ``cluster`` are options of the simulated cluster.
    """

    def __init__(
        self, root: Path, devices: Iterable[str], *, seed: int = 0, shares: int = 1, **cluster: Any
    ) -> None:
        self.root = root
        self.shares = shares
        self.things = root / "things"
        self.things.mkdir()
        self.devices = sorted(devices)
        for name in self.devices:
            self.set_health(name)
        self.cluster = SimulatedCluster(controllers=False, seed=seed, **cluster).start()
        self.make = Objects(self.cluster)
        self.clock = ManualClock()
        self.booked = Booked()
        kubelet_dir = root / "k"
        for name in ("plugins", "plugins_registry"):
            (kubelet_dir / name).mkdir(parents=True)
        (root / "cdi").mkdir()
        config = KubeletConfig(sync_interval=None, watch_interval=0.2, cdi_dirs=(root / "cdi",))
        self.node = SimulatedNode(
            kubelet_dir,
            ApiServer(self.cluster.url, timeout=5),
            NODE,
            interval=None,
            config=config,
            clock=self.clock,
            seed=seed,
            observer=self.booked,
        )
        self.booked.node = self.node
        self.kubelet = self.node.kubelet
        self.protocol: Protocol = "device-plugin"
        self.process: forked_process.Forked | None = None
        self.cluster.add_node(NODE)
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.make.device_class("thing", selectors=[selector], extendedResourceName=RESOURCE)
        self._made = itertools.count(1)
        self._log_before = 0
        self._waiter = Waiter()

    def __enter__(self) -> Self:
        self.node.__enter__()
        self.kubelet.run(PLUGIN_POD)
        self.start_plugin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end_plugin(signal.SIGKILL)
        self.node.__exit__(kind, error, traceback)
        self.cluster.stop()

    # The plugin

    def start_plugin(self) -> None:
        """Start the plugin's process."""
        self._write_config()
        kubelet_dir = self.kubelet.plugin_dir.parent
        log = (self.root / "log").open("ab")
        self._log_before = log.tell()
        self.process = forked_process.Popen(
            ["cluster.things_plugin.ThingsCommand", f"--config={self._config}"],
            env={
                "HOME": str(self.root),
                FOLDER: str(self.things),
                SHARES: str(self.shares),
                "DP_PLUGIN_DIR": str(self.kubelet.plugin_dir),
                "DP_REGISTRY_DIR": str(self.kubelet.registry_dir),
                "DP_POD_RESOURCES_SOCKET": str(self.kubelet.pod_resources_socket),
                "DP_DRIVER_DIR": str(kubelet_dir / "plugins"),
                "DP_CDI_DIR": str(self.root / "cdi"),
                "DP_NODE_NAME": NODE,
                "DP_API_SERVER": self.cluster.url,
                "DP_POD_RESOURCES_INTERVAL": "200ms",
                "DP_DISCOVERY_INTERVAL": "200ms",
                "DP_POLL_INTERVAL": "100ms",
                "DP_HTTP_ADDRESS": "127.0.0.1:0",
                "DP_RELOAD": "sighup",
                "DP_LOG_FORMAT": "json",
            },
            stdin=forked_process.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()

    def end_plugin(self, number: int = signal.SIGTERM) -> None:
        """End the plugin's process, if there is one."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            os.kill(process.pid, number)
            process.wait(PATIENCE)

    def switch(self, protocol: Protocol) -> None:
        """Have devices offered by another protocol, by the file, as the plugin sees it."""
        self.protocol = protocol
        self._write_config()
        if self.process is not None:
            eventually(self._has_started, "the plugin")  # or the signal ends it
            os.kill(self.process.pid, signal.SIGHUP)

    def _has_started(self) -> bool:
        return b'"event": "started"' in (self.root / "log").read_bytes()[self._log_before :]

    @property
    def _config(self) -> Path:
        return self.root / "config.json"

    def _write_config(self) -> None:
        draft = self.root / "draft.json"
        draft.write_text(json.dumps({"protocol": self.protocol}))
        draft.replace(self._config)

    def set_health(self, name: str, reason: str = "") -> None:
        """Make a device unhealthy for ``reason``, or healthy."""
        draft = self.root / "draft"
        draft.write_text(reason)
        draft.replace(self.things / name)

    def lose_cdi_files(self) -> None:
        """Delete all CDI files, as a cleaner of temporary files does."""
        for path in (self.root / "cdi").iterdir():
            path.unlink(missing_ok=True)

    @property
    def log(self) -> str:
        """What the plugin has logged."""
        path = self.root / "log"
        return path.read_text() if path.exists() else ""

    # Time

    def step(self) -> None:
        """Let controllers, scheduler and kubelet do what there is to do, and check the devices."""
        self.clock.advance(_TICK)
        for _ in range(2):
            self.cluster.settle()
            self.node.step()
        self.check()

    def check(self) -> None:
        """Fail if a device was with two pods at any start of a container, or is now."""
        assert self.process is None or self.process.poll() is None, "the plugin has ended"
        assert [] == self.booked.doubled
        assert {} == double_bookings(self.kubelet.pods)
        assert () == self.kubelet.crashes

    def step_until(self, condition: Callable[[], object], what: str) -> None:
        """Step until ``condition`` holds."""

        def is_so() -> bool:
            self.step()
            return bool(condition())

        # A watch that has failed several times in a row is made again a minute later.
        eventually(is_so, what, timeout=4 * PATIENCE, every=0.05)

    def pause(self, seconds: float) -> None:
        """Let the plugin work for some real time."""
        self._waiter.pause(seconds)

    # Pods

    def pod(self, count: int = 1, *, by_claim: bool = False, shares: int = 0) -> str:
        """Create a pod for ``count`` devices, by its limits or a claim for ``shares`` of each."""
        name = f"p{next(self._made)}"
        if not by_claim:
            return str(self.make.pod(name, limits={RESOURCE: count})["metadata"]["name"])
        capacity = {"capacity": {"requests": {"shares": str(shares)}}} if shares else {}
        exactly = {"deviceClassName": "thing", "count": count, **capacity}
        self.make.claim_of(name, [{"name": "r", "exactly": exactly}])
        spec = [{"name": "d", "resourceClaimName": name}]
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
        self.make.pod(name, resourceClaims=spec, containers=[container])
        return name

    def running(self) -> dict[str, list[str]]:
        """Return the devices of all running pods."""
        found = {}
        for state in self.kubelet.pods:
            for container in state.running:
                if state.pod.name != PLUGIN_POD.name:
                    options = state.started.get(container)
                    paths = [one.host_path for one in options.devices] if options else []
                    found[state.pod.name] = sorted(Path(path).name for path in paths)
        return found

    def restart_container(self, name: str) -> None:
        """End a container, and start it again as the kubelet does: now, or later."""
        pod = self.node.pod(name)
        state = self.kubelet.pod(pod)
        self.kubelet.exit_container(pod, "main")
        try:
            self.kubelet.start_container(pod, "main")
        except (ContainerStartError, PodNotReadyError):
            state.waiting = ["main"]

    # What is offered

    def offered_by_dra(self) -> list[str]:
        """Return the devices in slices without a taint."""
        return sorted(
            device["name"]
            for one in self.cluster.list("ResourceSlice")
            for device in one["spec"].get("devices", ())
            if not device.get("taints")
        )

    def offered_by_plugin(self) -> list[str]:
        """Return the devices that the kubelet would give out."""
        return sorted(self.kubelet.healthy(RESOURCE)) if self.kubelet.running else []

    def allocatable(self) -> int:
        """Return how many devices the node object says that pods can have from the plugin."""
        node = self.cluster.get("Node", NODE) or {}
        return int(node["status"]["allocatable"].get(RESOURCE, "0"))
