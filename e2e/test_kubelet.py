"""What plugins rely on and the simulated kubelet does, on a real kubelet."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from homes.case import cases
from homes.chaos.witness import Witness
from homes.cluster.deployed import Deployed
from homes.cluster.home import Cluster
from homes.cluster.odd_plugin import IDS, PREFERENCES, RESOURCE, SILENT, OddPlugin
from homes.cluster.session import Session
from homes.cluster.workload import is_running
from homes.home import Plugin, offered

GOPHER: Final = cases()["gopher"].plugin
FPGA: Final = cases()["fpga"].plugin
"""It is exclusive."""
STAY: Final = "trap exit TERM; sleep 7200 & wait"
CLOCK: Final = """
import pathlib, signal, sys, time
path = pathlib.Path("/shared")
last = path / "last"
def write(name):
    new = path / f"{name}-new"  # another than that of the other container
    new.write_text(str(time.monotonic()))
    new.replace(path / name)
"""
DEAF: Final = f"""{CLOCK}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
write("last")
print("begun", flush=True)
while True:
    write("last")
    time.sleep(0.02)
"""
NEXT: Final = f"""{CLOCK}
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
write("first")
before = ""
while before != last.read_text():
    before = last.read_text()
    time.sleep(3)
print((path / "first").read_text(), before, flush=True)
time.sleep(7200)
"""
FAILED: Final = "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = "


def begin(cluster: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """Create a pod, and return it once it runs or was rejected."""
    here = cluster.here
    here.kubectl.apply(pod)
    return begun(cluster, pod["metadata"]["name"])


def begun(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return a pod once it runs or was rejected."""
    here, found = cluster.here, dict[str, Any]()

    def has_begun() -> bool:
        found.update(here.kubectl.get_own("pod", name))
        return is_running(found) or found["status"]["phase"] == "Failed"

    here.wait(has_begun, f"the pod {name} to run or to fail")
    return found


class Node:
    """A node with a plugin whose preferences are odd."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._here = cluster, cluster.here
        self.plugin = OddPlugin(cluster.here, cluster.pods.running("odd", "", {}))
        self.witness = Witness(cluster.here)
        pod = cluster.pods.running("witness", "", {})
        (container,) = pod["spec"]["containers"]
        container |= {"image": cluster.here.image(), "volumeMounts": []}
        container["securityContext"] = {"runAsUser": 0}
        pod["spec"]["volumes"] = []
        self.witness.start(pod, 3600)
        for resource in (RESOURCE, SILENT):
            cluster.wait_allocatable(resource, len(IDS))

    def run(self, name: str, resource: str, count: int, *, init: int = 0) -> dict[str, Any]:
        """Return a pod once it runs or was rejected; ``init`` is what an init container has."""
        make = self._cluster.pods.running
        pod = make(name, STAY, {resource: str(count)})
        if init:
            (container,) = make(name, "true", {resource: str(init)})["spec"]["containers"]
            pod["spec"]["initContainers"] = [{**container, "name": "first"}]
        return begin(self._cluster, pod)

    def held(self) -> set[str]:
        """Return the devices that pods have."""
        own = (RESOURCE, SILENT)
        listed = self.witness.seen()["listed"]
        return {device for *_, resource, device in listed if resource in own}

    def delete(self, name: str) -> None:
        """Delete a pod, and wait until it holds nothing."""
        words = ("delete", "pod", name, "--grace-period=1", "--wait=false")
        self._here.kubectl.own(*words)
        self._here.wait(lambda: not self.held(), "all devices to be free")


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    cluster.install(GOPHER)
    try:
        yield Node(cluster)
    finally:
        cluster.uninstall()


@pytest.mark.gopher
@pytest.mark.timeout(900)
def test_a_preference_is_followed_as_far_as_it_goes(node: Node) -> None:
    for number, (answer, size, certain, possible) in enumerate(PREFERENCES):
        node.plugin.prefer(answer)
        assert is_running(node.run(f"p{number}", RESOURCE, size))
        held = node.held()
        assert size == len(held)
        assert certain <= held <= possible, (answer, held)
        assert (set(IDS), set[str](), size) == node.plugin.asked()[-1]
        assert number + 1 == len(node.plugin.asked())
        node.delete(f"p{number}")
    check_failures(node)
    check_nobody_is_asked(node)
    check_init_containers(node)


def check_failures(node: Node) -> None:
    """A preference that fails rejects the pod, and costs no device."""
    for code, name in (("INTERNAL", "Internal"), ("UNIMPLEMENTED", "Unimplemented")):
        node.plugin.prefer(code)
        status = node.run(f"failing-{name.lower()}", RESOURCE, 1)["status"]
        assert "UnexpectedAdmissionError" == status["reason"]
        assert f"{FAILED}{name} desc = oops" in status["message"]
        assert not node.held()


def check_nobody_is_asked(node: Node) -> None:
    """A plugin that does not say that it has preferences is not asked."""
    calls = len(node.plugin.asked())
    assert is_running(node.run("silent", SILENT, 2))
    assert (2, calls) == (len(node.held()), len(node.plugin.asked()))
    node.delete("silent")


def check_init_containers(node: Node) -> None:
    """What an init container had is included whatever is preferred; if it is enough, all is."""
    node.plugin.prefer([["x"]])
    assert is_running(node.run("reusing", RESOURCE, 2, init=1))
    (_, none, one), (available, must, two) = node.plugin.asked()[-2:]
    assert (set[str](), 1, 1, 2) == (none, one, len(must), two)
    assert set(IDS) == available
    assert must < node.held()
    node.delete("reusing")
    calls = len(node.plugin.asked())
    assert is_running(node.run("satisfied", RESOURCE, 1, init=1))
    assert calls + 1 == len(node.plugin.asked())
    node.delete("satisfied")


@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(GOPHER, marks=pytest.mark.gopher, id="gopher"),
        pytest.param(FPGA, marks=pytest.mark.fpga, id="fpga"),
    ],
)
def test_a_grace_period_keeps_a_device_until_its_container_has_ended(
    cluster: Cluster, session: Session, plugin: Plugin
) -> None:
    cluster.install(plugin)
    resource, count = offered(cluster, plugin)
    seconds = overlap(cluster, plugin, {resource: str(count)}, ["--grace-period=2"])
    assert seconds is not None
    assert seconds <= 0
    # Nothing is promised here, and nothing can be: the API server has forgotten the pod.
    without = overlap(cluster, plugin, {resource: str(count)}, ["--grace-period=0", "--force"])
    found = "the next pod was rejected" if without is None else f"two pods had it {without:.1f} s"
    session.progress.say(f"{plugin.name}: without a grace period {found}")


def overlap(
    cluster: Cluster, plugin: Plugin, limits: dict[str, str], words: Sequence[str]
) -> float | None:
    """Return how long a container that ignores SIGTERM runs on when the next has its devices.

    None if the kubelet does not admit the next one.
    """
    here = cluster.here
    case = words[0].rpartition("=")[2]
    pods = []
    for name, command in (("deaf", DEAF), ("next", NEXT)):
        pod = cluster.pods.running(f"{name}-{case}", "", limits)
        (container,) = pod["spec"]["containers"]
        container |= {"image": here.image(), "command": ["python3", "-c", command]}
        container["securityContext"] = {"runAsUser": 0}
        container["env"] = [{"name": key, "value": text} for key, text in plugin.asks.items()]
        container["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
        place = {"path": f"{here.folder}/shared-{case}", "type": "DirectoryOrCreate"}
        pod["spec"]["volumes"] = [{"name": "shared", "hostPath": place}]
        pods.append(pod)
    deaf, following = pods
    assert is_running(begin(cluster, deaf))
    name = deaf["metadata"]["name"]
    # A container runs before its program has begun.
    said = here.wait(lambda: line(here, name), f"the pod {name} to hold its devices")
    assert said == "begun\n"
    here.kubectl.apply(following)
    here.kubectl.own("delete", "pod", name, "--wait=false", *words)
    after = following["metadata"]["name"]
    status = begun(cluster, after)["status"]
    if "Failed" == status["phase"]:
        return None
    said = here.wait(lambda: line(here, after), "the first container to end")
    assert re.fullmatch(r"[\d.]+ [\d.]+\n", said), said
    first, last = map(float, said.split())
    here.kubectl.own("delete", "pod", after, "--grace-period=1")
    return last - first


def line(here: Deployed, pod: str) -> str:
    """Return what a pod has printed if the last line is whole."""
    said = here.kubectl.own("logs", pod)
    return said if said.endswith("\n") else ""
