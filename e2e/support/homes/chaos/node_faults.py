"""Faults of what plugins stand on: the API server, the runtime, the node, its disks."""

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Final

from homes.chaos.checks import Checks
from homes.chaos.load import Load
from homes.chaos.witness import DISKS, Witness
from homes.cluster.home import Cluster
from homes.cluster.manifests import CASE, Options

FULL: Final = 6.0
"""Seconds for which a disk is full."""
HANGS: Final = 20.0
"""Seconds for which a program hangs or is slow: an API server is missed after ten."""
LASTS: Final = 15.0
"""Seconds between the beginning and the end of a fault that is a command."""
_SLOW: Final = 0.02
"""Seconds of each 0.25 for which a slow program runs."""
_PROGRAMS: Final = {"api": "kube-apiserver", "runtime": "containerd", "crio": "crio"}
Kill = Callable[[], None]


class NodeFaults:
    """Each begins a fault, has the plugins need what is away, and ends it again, also if it fails.

    ``needs`` are faults of the plugins: each has them start anew.
    """

    def __init__(
        self,
        homes: tuple[Cluster, Cluster],
        load: Load,
        witness: Witness,
        checks: Checks,
        chance: random.Random,
        needs: Iterable[Kill],
    ) -> None:
        self._homes, self._here = homes, homes[0].here
        self._load, self._witness, self._checks = load, witness, checks
        self._random, self._needs = chance, [*needs]

    def table(self, options: Options) -> tuple[dict[str, Kill], list[str]]:
        """Return those that can be made, by name, and why others cannot."""
        made: dict[str, Kill] = {"drain": self.drain, "all": self.all, "cordon": self.cordon}
        missing = []
        for name, folder in DISKS.items():
            if problem := self._witness.why_not_fill(folder):
                missing.append(f"disk-{name} is not filled: {problem}")
            else:
                made[f"disk-{name}"] = lambda folder=folder: self._fill(folder)  # type: ignore[misc]
        programs = _PROGRAMS if options.chaos_node else {}
        if not programs:
            missing.append("nothing hangs: no --chaos-node")
        for name, program in programs.items():
            if problem := self._witness.freeze(program, 0, 0):
                missing.append(f"{name}-hangs: {problem}")
                continue
            made[f"{name}-hangs"] = lambda program=program: self._hang(program)  # type: ignore[misc]
            made[f"{name}-slow"] = lambda program=program: self._slow(program)  # type: ignore[misc]
        if options.reboot:
            made["reboot"] = lambda: self._reboot(options.reboot)
        for one in options.node_fault:
            name, _, command = one.partition("=")
            assert command, f"--node-fault {one}: write NAME=COMMAND"
            made[name] = lambda command=command: self._command(command)  # type: ignore[misc]
        return made, missing

    # By the API server

    def cordon(self) -> None:
        node = self._homes[0].node
        self._here.kubectl("cordon", node)
        try:
            self._load.delete()
            self._load.plain()
        finally:
            self._here.kubectl("uncordon", node)

    def drain(self) -> None:
        """Evict all pods but the plugins', which a drain spares, and restart a plugin meanwhile."""
        node = self._homes[0].node
        try:
            self._random.choice(self._needs)()
            words = ("--ignore-daemonsets", "--force", "--grace-period=1", "--timeout=60s")
            self._here.kubectl("drain", node, f"--pod-selector={CASE}", *words)
            self._load.forget()
            self._load.plain()
        finally:
            self._here.kubectl("uncordon", node)

    def all(self) -> None:
        """Kill both plugins at once, and the pods of both."""
        uids = [one["metadata"]["uid"] for home in self._homes for one in home.here.pods()]
        self._checks.is_spared = False
        self._witness.kill(*uids)

    # By the witness

    def _fill(self, folder: str) -> None:
        """Let no file fit on a disk, while a plugin and a pod need a new one."""
        with ThreadPoolExecutor(1) as background:
            full = background.submit(self._witness.fill, folder, FULL)
            self._here.wait(
                lambda: full.done() or self._witness.why_no_socket(folder), "a full disk"
            )
            self._random.choice(self._needs)()
            self._load.plain()
            full.result()

    def _hang(self, program: str) -> None:
        """Have a program hang; the plugin is killed meanwhile, and started again."""
        uids = [one["metadata"]["uid"] for one in self._here.pods()]
        self._load.plain()
        self._load.delete()
        assert not (problem := self._witness.freeze(program, HANGS, 0, *uids)), problem

    def _slow(self, program: str) -> None:
        with ThreadPoolExecutor(1) as background:
            slow = background.submit(self._witness.freeze, program, HANGS, _SLOW)
            self._random.choice(self._needs)()
            self._load.plain()
            self._load.delete()
            slow.result()

    # By commands of the user

    def _reboot(self, command: str) -> None:
        before = self._here.containers()
        self._checks.is_spared = False
        self._homes[0].run_whole(command, MEANWHILE="true")
        self._here.wait_rebooted(before)
        self._is_over()

    def _command(self, command: str) -> None:
        run, image = self._homes[0].run_whole, self._here.image()
        self._checks.is_spared, self._load.is_refused = False, True
        try:
            run(command, PHASE="begin", IMAGE=image)
            if self._witness.is_there():  # which a runtime that is away does not let say
                uids = [one["metadata"]["uid"] for one in self._here.pods()]
                self._witness.kill(*uids)
            self._load.plain()
            self._load.delete()
            sleep(LASTS)
        finally:
            run(command, PHASE="end", IMAGE=image)
            self._load.is_refused = False
        self._is_over()

    def _is_over(self) -> None:
        """Take the kubelet that is there for the right one."""
        self._here.wait(self._witness.is_there, "the witness")
        self._checks.is_new_kubelet()
