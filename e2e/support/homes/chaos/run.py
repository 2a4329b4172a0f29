"""Hours of trouble on a cluster: random faults, and what must hold all along, seen from outside."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any

from homes.chaos.checks import Checks
from homes.chaos.scripts import LOCK
from homes.chaos.witness import Witness
from homes.cluster.deployed import PLUGIN
from homes.cluster.home import Cluster

FILES = 8
"""Gophers that come and go."""
MOST = 10
"""Pods at once."""
_STAY = 7200.0
_MARGIN = 1800.0
"""Seconds for which the witness may outlive the faults."""
_FULL = 6.0
"""Seconds for which the disk is full."""
_HOUR = 3600.0
_PATIENT = 3
"""Times that a container is killed: the kubelet waits twice as long before each restart."""


@dataclass(frozen=True)
class Means:
    """What the faults need beside the cluster."""

    restart_kubelet: str
    """A shell command."""
    other_tag: str = ""
    """Another tag of the image of the gopher plugin; without it no other image is rolled out."""
    clock: bool = False
    """Whether the node's clock may be set."""
    clock_seconds: float = 3.0
    """For how long."""


class Chaos:
    """Faults on the node of ``gopher`` and ``simulated``, which have their plugins installed.

    All faults hit both, but only the gopher plugin is killed, deleted and rolled out: the other
    one shows what grows in hours. The same seed gives the same faults in the same order; what they
    hit depends on the moment.
    """

    def __init__(
        self,
        gopher: Cluster,
        simulated: Cluster,
        resources: tuple[str, str],
        seed: int,
        means: Means,
    ) -> None:
        self._gopher, self._resources, self._means = gopher, resources, means
        self._random = random.Random(seed)
        self._here = gopher.here
        self._witness = Witness(gopher.here)
        self.checks = Checks(gopher, simulated, resources, self._witness)
        self._pods: list[str] = []
        self._number = 0
        self._files = {"g0", "g1", "g2", "g3"}
        self._image = self._wanted = gopher.here.image()
        self.faults: Counter[str] = Counter()

    def begin(self, seconds: float) -> list[str]:
        """Prepare the node for so many seconds; return why some faults are not done."""
        self._witness.start(self._pod({}), seconds + _MARGIN)
        for name in self._files:
            self._gopher.add_file(name)
        assert self.checks.is_new_kubelet(), "no kubelet on the node"
        often = (self.plain, self.several, self.restarting, self.init, self.sidecar, self.file)
        sometimes = (self.kill, self.socket, self.kubelet)
        rarely = [self.pod, self.rollout, self.cordon, self.kubelet_away]
        missing = []
        if self._means.other_tag:
            rarely += [self.image] * 2
        else:
            missing.append("no other image is rolled out: no --before-tag")
        if problem := self._witness.why_not_fill():
            missing.append(f"the disk is not filled: {problem}")
        else:
            rarely += [self.disk] * 2
        if self._means.clock:
            rarely += [self.clock] * 2
        self._heavy = {*sometimes, *rarely}
        self._kinds = [*often * 4, *[self.delete] * 12, *sometimes * 2, *rarely]
        return missing

    # Pods

    def _container(self, name: str, limits: Mapping[str, str], seconds: float) -> dict[str, Any]:
        (container,) = self._gopher.pods.running(name, "", limits)["spec"]["containers"]
        return {
            **container,
            "name": name,
            # It has Python, which has locks.
            "image": self._image,
            "command": ["python3", "-c", LOCK, f"{seconds:g}"],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "locks", "mountPath": "/locks"}],
        }

    def _pod(self, limits: Mapping[str, str], seconds: float = _STAY) -> dict[str, Any]:
        self._number += 1
        pod = self._gopher.pods.running(f"chaos-{self._number}", "", limits)
        place = {"path": f"{self._here.folder}/locks", "type": "DirectoryOrCreate"}
        # With 0 the API server forgets the pod at once, and the kubelet gives its devices to the
        # next one while its containers still end.
        pod["spec"]["terminationGracePeriodSeconds"] = 2
        pod["spec"]["containers"] = [self._container("main", limits, seconds)]
        pod["spec"]["volumes"] = [{"name": "locks", "hostPath": place}]
        return pod

    def _run(self, pod: dict[str, Any]) -> None:
        if len(self._pods) >= MOST:
            self.delete()
        self._here.kubectl.apply(pod)
        self._pods.append(pod["metadata"]["name"])

    # Faults

    def plain(self) -> None:
        self._run(self._pod({self._resources[0]: str(self._random.randint(1, 2))}))

    def several(self) -> None:
        self._run(self._pod(dict.fromkeys(self._resources, "1")))

    def restarting(self) -> None:
        pod = self._pod({self._resources[0]: "1"}, 3)
        pod["spec"]["restartPolicy"] = "Always"
        self._run(pod)

    def init(self) -> None:
        pod = self._pod({self._resources[0]: "1"})
        first = self._container("first", {self._resources[0]: "1"}, 1)
        pod["spec"]["initContainers"] = [first]
        self._run(pod)

    def sidecar(self) -> None:
        pod = self._pod({self._resources[0]: "1"})
        beside = self._container("beside", {self._resources[0]: "1"}, _STAY)
        pod["spec"]["initContainers"] = [{**beside, "restartPolicy": "Always"}]
        self._run(pod)

    def delete(self) -> None:
        if self._pods:
            name = self._pods.pop(self._random.randrange(len(self._pods)))
            words = ("delete", "pod", name, "--wait=false", "--ignore-not-found")
            self._here.kubectl.own(*words)

    def file(self) -> None:
        name = f"g{self._random.randrange(FILES)}"
        self._files ^= {name}
        path = f"/host/{self._here.namespace}/files/{name}"
        self._here.on_node(f"touch {path}" if name in self._files else f"rm -f {path}")

    def kill(self) -> None:
        """Kill the plugin, as the kernel does when memory is short."""
        for pod in self._here.kubectl.get_own("pods", f"--selector={PLUGIN}")["items"]:
            restarts = [one["restartCount"] for one in pod["status"].get("containerStatuses", ())]
            if sum(restarts) < _PATIENT:
                self._witness.kill(pod["metadata"]["uid"])
            else:
                self.pod()

    def socket(self) -> None:
        """Delete the plugins' sockets."""
        self._witness.delete_sockets()

    def pod(self) -> None:
        """Delete the plugin's pod."""
        words = ("delete", "pods", f"--selector={PLUGIN}", "--grace-period=1", "--wait=false")
        self._here.kubectl.own(*words)

    def rollout(self) -> None:
        self._here.kubectl.own("rollout", "restart", "daemonset")

    def image(self) -> None:
        """Roll the other image out, or the first one again."""
        other = f"{self._image.rpartition(':')[0]}:{self._means.other_tag}"
        self._wanted = other if self._wanted == self._image else self._image
        words = ("set", "image", "daemonset", "--all", f"device-plugin={self._wanted}")
        self._here.kubectl.own(*words)

    def cordon(self) -> None:
        self._here.kubectl("cordon", self._gopher.node)
        try:
            self.delete()
            self.plain()
        finally:
            self._here.kubectl("uncordon", self._gopher.node)

    def disk(self) -> None:
        """Let no file fit on the disk with the sockets, while a plugin needs a new one."""
        needs = self._random.choice((self.socket, self.kill, self.pod))
        with ThreadPoolExecutor(1) as background:
            full = background.submit(self._witness.fill, _FULL)
            self._here.wait(lambda: full.done() or self._witness.why_no_socket(), "a full disk")
            needs()
            self.plain()
            full.result()

    def clock(self) -> None:
        """Set the clock by an hour, and let a plugin register and a pod start meanwhile."""
        by = self._random.choice((-_HOUR, _HOUR))
        needs = self._random.choice((self.socket, self.kill, self.pod))
        with ThreadPoolExecutor(1) as background:
            jumped = background.submit(self._witness.jump, by, self._means.clock_seconds)
            needs()
            self.plain()
            jumped.result()

    def kubelet(self, away: float = 1) -> None:
        self.checks.kubelet()
        self._gopher.run_whole(self._means.restart_kubelet, PAUSE=f"{away:g}")
        self._here.wait(self.checks.is_new_kubelet, "the kubelet to be another process")

    def kubelet_away(self) -> None:
        self.kubelet(10)

    # All of it

    def settle(self) -> None:
        """Wait until everything is there again, and check it."""
        self.checks.settled(len(self._files))
        assert self._wanted == self._here.image()

    def run(self, seconds: float, say: Callable[[str], None]) -> None:
        """Do faults for so long."""
        end, since = monotonic() + seconds, 0
        while monotonic() < end:
            fault = self._random.choice(self._kinds)
            fault()
            self.faults[fault.__name__] += 1
            since += 1
            if fault in self._heavy or since > 10:
                self.checks.devices()
            if since > 20:
                self.settle()
                since = 0
                say(self.summary())
        self.settle()
        self.checks.flat()

    def summary(self) -> str:
        """Return what was done and seen until now."""
        rejected = Counter(self.checks.rejected.values())
        seen = {
            name: [getattr(one, name) for one in self.checks.vitals]
            for name in ("memory", "threads", "files")
        }
        memory = [value / 1024 for value in seen["memory"]]
        return (
            f"{self.faults.total()} faults, {self.checks.count} checks, {self._number} pods, all"
            f" devices back within {self.checks.slowest:.1f} s; the plugin that lives on:"
            f" {min(memory):.1f} to {max(memory):.1f} MiB, now {memory[-1]:.1f},"
            f" {min(seen['threads'])} to {max(seen['threads'])} threads,"
            f" {min(seen['files'])} to {max(seen['files'])} open files;"
            f" faults {dict(self.faults.most_common())}; pods rejected {dict(rejected)}"
        )
