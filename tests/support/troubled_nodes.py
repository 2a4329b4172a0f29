"""Nodes that are as each alert is about: what has happened there, and the word that gives it away.

What the device plugin does is on a stand-in for a cluster, with the real kubectl. What DRA does is
on a node of a simulated cluster, whose plugin runs here: its commands are run without kubectl. So
is what GPUs do, on the fake driver.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import override

import deviceplugin as dp
from cluster.container import BIN
from cluster.kinds import POD
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running
from deviceplugin_testing.conformance._subject import free_port
from drivers.dual_node import IDS, DualNode, Gophers, gopher
from drivers.running_driver import register
from manifests.kustomize import overlay
from patience import eventually
from trouble import Scrapes, Trouble, in_pod, logging_to
from troubled_gpus import OF_GPUS, GpuNode

NAMESPACE: Final = "simulated-device-plugin"
RESOURCE: Final = "example.com/simple-device"
FIRST, SECOND = "simple-device-node-1-0", "simple-device-node-1-1"
READ: Final = (
    "from urllib.request import urlopen;"
    "print(urlopen('http://127.0.0.1:9494/metrics').read().decode())"
)


class PluginNode:
    """A node with the simulated plugin, which does as a test says."""

    def __init__(self, cluster: SmallCluster, root: Path) -> None:
        self.cluster, self._root = cluster, root
        self._control = cluster.node.root / "tmp/control"

    def deploy(self, **settings: object) -> None:
        """Deploy the plugin, or deploy it anew, with these settings."""
        quick = {"discovery-interval": "100ms", "discovery-deadline": "1s", "vanished-grace": "1s"}
        config = {"number-devices": 2, "control-socket": str(self._control), **quick, **settings}
        change = [{"op": "replace", "path": "/data/config.yaml", "value": json.dumps(config)}]
        place = overlay(self._root, "simulated") / "kustomization.yaml"
        patches = [{"target": {"kind": "ConfigMap"}, "patch": json.dumps(change)}]
        place.write_text(json.dumps({**json.loads(place.read_text()), "patches": patches}))
        self.cluster.kubectl("apply", f"--kustomize={self._root}")
        for pod in self.cluster.there(POD):
            self.kubectl("delete", "pod", pod)

    def shell(self, command: str) -> str:
        """Return what a command of a page prints; it fails a test if it fails."""
        status, said = self.cluster.reader().run(command)
        assert status == 0, f"{command}: {said}"
        return said

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl(*words[:2], f"--namespace={NAMESPACE}", *words[2:])

    def does(self, *words: str) -> None:
        """Have the plugin do something, as its page says."""
        command = [str(BIN / "simulated-device-plugin"), "ctl", f"--control-socket={self._control}"]
        subprocess.run([*command, *words], check=True, timeout=60, stdout=subprocess.DEVNULL)

    def pod(self) -> str:
        (name,) = (one for one in self.cluster.there(POD) if one.startswith("simulated"))
        return name

    def has(self, healthy: int, all_devices: int = 2) -> None:
        """Wait until the kubelet has so many devices."""
        kubelet = self.cluster.node.kubelet

        def found() -> tuple[int, int]:
            return len(kubelet.healthy(RESOURCE)), kubelet.capacity(RESOURCE)

        eventually(lambda: (healthy, all_devices) == found(), lambda: f"others than {found()}")

    def scrape(self, until: str = "") -> str:
        """Return the plugin's metrics, once ``until`` is among them."""

        def read() -> str:
            text = self.kubectl("exec", self.pod(), "--", "python3", "-c", READ)
            return text if until in text else ""

        return eventually(read, until)


class ClaimNode(DualNode):
    """A node whose plugin can offer its devices by DRA, and refuses some."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.plugin = Locked(*map(gopher, IDS), resource=self.plugin.resource)
        self.log = root / "log"

    def shell(self, command: str) -> str:
        """Return what a command prints: kubectl would have run it in the plugin's pod."""
        return in_pod(command, self.log, self.kubelet.pod_resources_socket)

    def pod(self) -> str:
        return "x"

    def scrape(self, until: str = "") -> str:
        """Return the plugin's metrics, once ``until`` is among them."""

        def read() -> str:
            assert self.host
            text = self.host._metrics.expose("")[1].decode()
            return text if re.search(until, text) else ""

        return eventually(read, until)


class Locked(Gophers):
    """Allocates nothing while it is locked."""

    locked = False

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        if self.locked:
            raise dp.AllocationError("card is locked")
        return super().allocate(devices)


def unplugged(node: PluginNode) -> Scrapes:
    yield node.scrape()
    node.does("unplug")
    node.has(0)
    yield node.scrape()


def misconfigured(node: PluginNode) -> Scrapes:
    yield node.scrape()
    node.deploy(**{"number-devices": "many"})
    eventually(lambda: "many" in node.kubectl("logs", node.pod()))


def unwatched(node: PluginNode) -> Scrapes:
    other = node.cluster.node.kubelet.pod_resources_socket.parent
    (sockets,) = {one.parent for one in node.cluster.node.root.rglob("kubelet.sock")} - {other}
    for path in (sockets / "kubelet.sock", *sockets.glob("example.com_*.sock")):
        path.unlink()
    yield node.scrape(f'deviceplugin_registered{{resource="{RESOURCE}"}} 0.0')


def broken(node: PluginNode) -> Scrapes:
    node.does("unhealthy", FIRST, "--reason=XID 79")
    node.has(1)
    yield node.scrape()


def worn(node: PluginNode) -> Scrapes:
    node.does("degraded", SECOND, "--reason=3 % of its blocks are left")
    yield node.scrape('state="degraded"')


def hanging(node: PluginNode) -> Scrapes:
    node.does("hang")
    node.has(0)
    yield node.scrape()


def loose(node: PluginNode) -> Scrapes:
    for _ in range(4):
        node.does("unhealthy", FIRST, "--reason=cable is loose")
        node.has(1)
        yield node.scrape()
        node.does("recover")
        node.has(2)
        yield node.scrape()


def restarting(node: PluginNode) -> Scrapes:
    yield node.scrape()
    for number in range(2, 10):
        node.cluster.node.bell.touch()
        eventually(lambda: not node.cluster.node.bell.exists())
        node.scrape(f'_registrations_total{{resource="{RESOURCE}"}} {number}.0')
    yield node.scrape()


def refusing(node: PluginNode) -> Scrapes:
    yield node.scrape()
    node.does("fail", "--reason=card is locked")
    image = {"image": "busybox:1.37", "command": ["true"], "imagePullPolicy": "IfNotPresent"}
    main = {"name": "main", **image, "resources": {"limits": {RESOURCE: 1}}}
    spec = {"restartPolicy": "Never", "containers": [main]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
    node.cluster.kubectl("apply", "--filename=-", text=json.dumps(pod))
    eventually(lambda: "Failed" in node.cluster.kubectl("get", "pod", "train", "--output=yaml"))
    yield node.scrape()


def unwanted(node: ClaimNode) -> Scrapes:
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=set(IDS))
    (socket,) = (path for path in node.sockets() if "gopher" in path.name)
    register(socket, "no such version")
    yield node.scrape(r"_driver_registered\{\S+ 0.0")


def locked(node: ClaimNode) -> Scrapes:
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=set(IDS))
    yield node.scrape()
    node.plugin.locked = True  # type: ignore[attr-defined]
    for name in IDS:
        node.make.pod(name, {node.plugin.resource: "1"})
    yield node.scrape(
        r'code="FAILED",\S*method="prepare"\S* [3-9]|method="prepare",code="FAILED"\S* [3-9]'
    )


def unanswered(node: ClaimNode) -> Scrapes:
    node.start(protocol="dra", api_server=f"http://127.0.0.1:{free_port()}")
    yield node.scrape(r'code="0"')
    yield node.scrape(r'_api_requests_total\{\S*code="0"\S* ([5-9]|\d\d)')


def miswritten(node: ClaimNode) -> Scrapes:
    node.plugin.invalid_entries = ("'cam': config.yaml:2: devices[0].cuont: unknown key",)
    node.start()
    yield node.scrape(r"_invalid_entries\S* 1.0")


def switching(node: ClaimNode) -> Scrapes:
    node.start()
    node.wait_for(plugin=set(IDS), dra=set())
    node.run("train")
    node.switch("dra")
    yield node.scrape(r"_devices_leaving\S* 1.0")


OF_PLUGIN: Final = {
    "DeviceNodeAtZero": Trouble(unplugged, "it is gone"),
    "DevicePluginGone": Trouble(misconfigured, "number-devices: 'many' is not a whole number"),
    "DevicePluginNotRegistered": Trouble(unwatched, "waiting for the kubelet"),
    "DeviceUnhealthy": Trouble(broken, "XID 79"),
    "DeviceDegraded": Trouble(worn, "3 % of its blocks are left"),
    "DeviceDiscoveryStale": Trouble(hanging, "discover() does not return"),
    "DeviceFlapping": Trouble(loose, "cable is loose"),
    "DevicePluginFlapping": Trouble(restarting, "kubelet restarted"),
    "DeviceAllocationRefused": Trouble(refusing, "card is locked"),
}
OF_DRA: Final = {
    "DeviceEntryInvalid": Trouble(miswritten, "devices[0].cuont"),
    "DeviceDriverNotRegistered": Trouble(unwanted, "no such version"),
    "DeviceClaimFailed": Trouble(locked, "card is locked"),
    "DeviceApiRequestsFailed": Trouble(unanswered, "slices not published"),
    "DeviceSwitchPending": Trouble(switching, "default/train/main"),
}
TROUBLES: Final = {**OF_PLUGIN, **OF_DRA, **OF_GPUS}
"""By the name of the alert."""


@contextmanager
def node_for(alert: str) -> Iterator[PluginNode | ClaimNode | GpuNode]:
    """Run a node on which what an alert is about has not happened yet."""
    with tempfile.TemporaryDirectory(prefix="dp", ignore_cleanup_errors=True) as path:
        root = Path(path)
        if alert in OF_DRA:
            claims = ClaimNode(root)
            with logging_to(claims.log), claims:
                yield claims
            return
        if alert in OF_GPUS:
            with GpuNode(root) as gpus, logging_to(gpus.log):
                yield gpus
            return
        with running({**PLUGINS, **SHELL}) as cluster:
            node = PluginNode(cluster, root)
            node.deploy()
            node.kubectl("rollout", "status", "daemonset", "--timeout=60s")
            yield node
