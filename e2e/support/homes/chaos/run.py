"""Hours of trouble on a cluster: random faults, and what must hold all along, seen from outside."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final

from homes.chaos.checks import Checks
from homes.chaos.load import Load
from homes.chaos.node_faults import NodeFaults
from homes.chaos.seen import GOPHERS, OTHERS
from homes.chaos.witness import Witness
from homes.cluster.deployed import PLUGIN
from homes.cluster.home import Cluster
from homes.cluster.manifests import Options
from homes.cluster.switched import Switched

FILES: Final = 8
"""Gophers that come and go."""
_MARGIN: Final = 1800.0
"""Seconds for which the witness may outlive the faults."""
_CLOCK: Final = 3.0
"""Seconds for which the clock is wrong."""
_HOUR: Final = 3600.0
_PATIENT: Final = 3
"""Times that a container is killed: the kubelet waits twice as long before each restart."""


class Chaos:
    """Faults on the node of ``gopher`` and ``simulated``, which have their plugins installed.

    Most faults hit both, but only the gopher plugin is killed, deleted and rolled out alone: the
    other one shows what grows in hours. With ``switched`` the gopher plugin goes from one protocol
    to the other. The same seed gives the same faults in the same order; what they hit depends on
    the moment.
    """

    def __init__(
        self,
        gopher: Cluster,
        simulated: Cluster,
        seed: int,
        options: Options,
        say: Callable[[str], None],
        switched: Switched | None = None,
    ) -> None:
        self._gopher, self._options, self._switched = gopher, options, switched
        self._say = say
        self._problems: list[str] = []
        self._random = random.Random(seed)
        self._here = gopher.here
        self.witness = Witness(gopher.here)
        self.load = Load(gopher, self._random)
        self.checks = Checks(
            gopher, simulated, self.witness, options.patience, has_dra=switched is not None
        )
        self._on_node = NodeFaults(
            (gopher, simulated),
            self.load,
            self.witness,
            self.checks,
            self._random,
            (self.kill, self.socket, self.pod),
        )
        self._files = {"g0", "g1", "g2", "g3"}
        self._image = self._wanted = gopher.here.image()
        self._protocols = ["dra", "device-plugin"]
        self.faults: Counter[str] = Counter()

    def watch(self, seconds: float) -> None:
        """Have a witness for so many seconds."""
        self.witness.start(self.load.pod({}), seconds + _MARGIN)
        assert self.checks.is_new_kubelet(), "no kubelet on the node"

    def begin(self, seconds: float) -> list[str]:
        """Prepare the node for so many seconds; return why some faults are not done."""
        self.watch(seconds)
        for name in self._files:
            self._gopher.add_file(name)
        names = ("plain", "several", "restarting", "init", "sidecar")
        often = {name: getattr(self.load, name) for name in names} | {"file": self.file}
        sometimes = {"kill": self.kill, "socket": self.socket, "kubelet": self.kubelet}
        rarely, missing = self._on_node.table(self._options)
        rarely |= {"pod": self.pod, "rollout": self.rollout, "kubelet-away": self.kubelet_away}
        if self._switched is not None:
            rarely["switch"] = self.switch
            self.switch()
        if self._options.before_tag:
            rarely["image"] = self.image
        else:
            missing.append("no other image is rolled out: no --before-tag")
        if self._options.chaos_clock:
            rarely["clock"] = self.clock
        heavy = sometimes | rarely
        chosen = self._options.chaos_faults.split(",") if self._options.chaos_faults else [*heavy]
        assert {*chosen} <= {*heavy}, f"--chaos-faults: there are {', '.join(heavy)}; {missing}"
        self._heavy = {name: heavy[name] for name in chosen}
        self._table = often | {"delete": self.load.delete} | self._heavy
        weights = [*often] * 4 + ["delete"] * 12 + [one for one in sometimes if one in chosen] * 2
        share = -(-12 // len(chosen))  # so that each run has as many of them
        self._names = weights + [one for one in rarely if one in chosen] * share
        return missing

    # Faults of plugins

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
                self.witness.kill(pod["metadata"]["uid"])
            else:
                self.pod()

    def socket(self) -> None:
        """Delete the plugins' sockets."""
        self.witness.delete_sockets()

    def pod(self) -> None:
        """Delete the plugin's pod."""
        words = ("delete", "pods", f"--selector={PLUGIN}", "--grace-period=1", "--wait=false")
        self._here.kubectl.own(*words)

    def rollout(self) -> None:
        self._here.kubectl.own("rollout", "restart", "daemonset")

    def image(self) -> None:
        """Roll the other image out, or the first one again."""
        other = f"{self._image.rpartition(':')[0]}:{self._options.before_tag}"
        self._wanted = other if self._wanted == self._image else self._image
        words = ("set", "image", "daemonset", "--all", f"device-plugin={self._wanted}")
        self._here.kubectl.own(*words)

    def switch(self) -> None:
        """Have the other protocol offer the devices."""
        assert self._switched is not None
        self._switched.to(self._protocols[0])
        self._protocols.reverse()

    def clock(self) -> None:
        """Set the clock by an hour, and let a plugin register and a pod start meanwhile."""
        by = self._random.choice((-_HOUR, _HOUR))
        needs = self._random.choice((self.socket, self.kill, self.pod))
        with ThreadPoolExecutor(1) as background:
            jumped = background.submit(self.witness.jump, by, _CLOCK)
            needs()
            self.load.plain()
            jumped.result()

    def kubelet(self, away: float = 1) -> None:
        self.checks.kubelet()
        self._gopher.run_whole(self._options.restart_kubelet, PAUSE=f"{away:g}")
        self._here.wait(self.checks.is_new_kubelet, "the kubelet to be another process")

    def kubelet_away(self) -> None:
        self.kubelet(10)

    # All of it

    def settle(self) -> None:
        """Wait until everything is there again and agrees, and check it."""
        expected = {GOPHERS: self._files, OTHERS: {"sim-0", "sim-1"}}
        self.checks.settled(expected, self._wanted)

    def run(self, seconds: float) -> None:
        """Do each fault alone, under pods, then do any for so long.

        What does not hold is said at once, and raised at the end as ``AssertionError``.
        """
        for name, fault in self._heavy.items():
            pods = (self.load.delete, self.load.delete, self.load.several, self.load.plain)
            if self._try(name, *pods, fault, self.settle):
                self._say(f"{name} alone: all back after {self.checks.last:.1f} s")
        end, since = monotonic() + seconds, 0
        while monotonic() < end:
            name = self._random.choice(self._names)
            since += 1
            is_checked = name in self._heavy or since > 10
            self._try(name, self._table[name], *[self.checks.devices] * is_checked)
            if since > 20:
                self._try("all of them", self.settle)
                self._say(self.summary())
                since = 0
        self.settle()
        self.checks.flat()
        assert not self._problems, "\n".join(self._problems)

    def _try(self, name: str, *steps: Callable[[], None]) -> bool:
        """Return whether all holds that is checked."""
        self.faults[name] += name in self._table
        try:
            for step in steps:
                step()
        except AssertionError as error:
            self._problems.append(f"{name}: {error}")
            self._say(self._problems[-1])
            return False
        return True

    def summary(self) -> str:
        """Return what was done and seen until now."""
        rejected = Counter(self.checks.rejected.values())
        text = (
            f"{self.faults.total()} faults, {self.checks.count} checks,"
            f" {self.checks.comparisons} comparisons, {self.load.number} pods, all"
            f" devices back within {self.checks.slowest:.1f} s;"
            f" faults {dict(self.faults.most_common())}; pods rejected {dict(rejected)}"
        )
        if not self.checks.is_spared:
            return text
        seen = {
            name: [getattr(one, name) for one in self.checks.vitals]
            for name in ("memory", "threads", "files")
        }
        memory = [value / 1024 for value in seen["memory"]]
        return (
            f"{text}; the plugin that lives on:"
            f" {min(memory):.1f} to {max(memory):.1f} MiB, now {memory[-1]:.1f},"
            f" {min(seen['threads'])} to {max(seen['threads'])} threads,"
            f" {min(seen['files'])} to {max(seen['files'])} open files"
        )
