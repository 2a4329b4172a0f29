"""Hours of trouble on a cluster: random faults, and what must hold all along, seen from outside."""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from homes.chaos_scripts import HOLDERS, KILL, KUBELETS, LOCK, READ, SOCKETS
from homes.cluster_home import Cluster
from homes.deployed import PLUGIN
from homes.workload import is_running

KUBELET = "/var/lib/kubelet/device-plugins"
FILES = 8
"""Gophers that come and go."""
MOST = 10
"""Pods at once."""
WITNESS = "witness"
_STAY = 7200.0


class Chaos:
    """Faults on the node of ``gopher`` and ``simulated``, which have their plugins installed.

    The same seed gives the same faults in the same order; what they hit depends on the moment.
    """

    def __init__(
        self,
        gopher: Cluster,
        simulated: Cluster,
        resources: tuple[str, str],
        seed: int,
        kubelet: str,
    ) -> None:
        self._gopher, self._simulated, self._resources = gopher, simulated, resources
        self._random = random.Random(seed)
        self._restart_kubelet = kubelet
        self._here = gopher.here
        self._pods: list[str] = []
        self._number = 0
        self._files = {"g0", "g1", "g2", "g3"}
        self._kubelet = ""
        self._image = gopher.here.image()
        self.faults: Counter[str] = Counter()
        self.slowest = 0.0
        """Seconds until all devices were allocatable again."""
        self.memory: list[int] = []
        """Of the plugin, in KiB."""
        self.checks = 0
        self._rejected: dict[str, str] = {}

    # The node

    def begin(self) -> None:
        """Have a pod on the node that sees and may do everything."""
        pod = self._pod({})
        pod["metadata"]["name"] = WITNESS
        pod["spec"]["hostPID"] = True
        (container,) = pod["spec"]["containers"]
        container["securityContext"]["privileged"] = True
        container["volumeMounts"].append({"name": "kubelet", "mountPath": KUBELET})
        kubelet = {"name": "kubelet", "hostPath": {"path": KUBELET, "type": "Directory"}}
        pod["spec"]["volumes"].append(kubelet)
        self._apply(pod)
        self._here.wait_phase(WITNESS, "Running")
        for name in self._files:
            self._gopher.add_file(name)
        self._kubelet = self._witness(KUBELETS)

    def _witness(self, script: str, *words: str, check: bool = True) -> str:
        """Return what a script prints that runs on the node."""
        command = (*self._here.kubectl.within("exec", WITNESS), "--", "python3", "-c", script)
        return self._here.kubectl(*command, *words, check=check).strip()

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

    def _apply(self, pod: dict[str, Any]) -> None:
        self._here.kubectl("apply", "--filename=-", stdin=json.dumps(pod))

    def _run(self, pod: dict[str, Any]) -> None:
        if len(self._pods) >= MOST:
            self.delete()
        self._apply(pod)
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
            self._here.kubectl(*self._here.kubectl.within(*words))

    def file(self) -> None:
        name = f"g{self._random.randrange(FILES)}"
        self._files ^= {name}
        path = f"/host/{self._here.namespace}/files/{name}"
        self._here.on_node(f"touch {path}" if name in self._files else f"rm -f {path}")

    def kill(self) -> None:
        """Kill one of the plugins, as the kernel does when memory is short."""
        here = self._random.choice((self._here, self._simulated.here))
        uids = self._here.kubectl(
            *("get", "pods", f"--namespace={here.namespace}", f"--selector={PLUGIN}"),
            "--output=jsonpath={.items[*].metadata.uid}",
        )
        for uid in uids.split():
            self._witness(KILL, uid)

    def socket(self) -> None:
        """Delete the plugins' sockets."""
        self._witness(SOCKETS, KUBELET)

    def pod(self) -> None:
        """Delete a plugin's pod."""
        words = ("delete", "pods", f"--selector={PLUGIN}", "--grace-period=1", "--wait=false")
        self._here.kubectl(*self._here.kubectl.within(*words))

    def rollout(self) -> None:
        self._here.kubectl(*self._here.kubectl.within("rollout", "restart", "daemonset"))

    def cordon(self) -> None:
        self._here.kubectl("cordon", self._gopher.node)
        try:
            self.delete()
            self.plain()
        finally:
            self._here.kubectl("uncordon", self._gopher.node)

    def kubelet(self, away: float = 1) -> None:
        self._check_kubelet()
        environment = {**os.environ, "PAUSE": f"{away:g}"}
        subprocess.run(self._restart_kubelet, shell=True, check=True, env=environment, timeout=120)
        self._here.wait(self._is_new, "the kubelet to be another process")

    def kubelet_away(self) -> None:
        self.kubelet(10)

    def _is_new(self) -> bool:
        found = self._witness(KUBELETS, check=False)
        if not found or found == self._kubelet:
            return False
        self._kubelet = found
        return True

    # What must hold

    def _check_kubelet(self) -> None:
        assert self._kubelet == self._witness(KUBELETS), "the kubelet has crashed"

    def check(self) -> None:
        """Fail if a device is in two running pods, by locks or by the kubelet's checkpoint."""
        before = self._running()
        text = self._witness(READ, f"{KUBELET}/kubelet_internal_checkpoint")
        violations = self._witness(READ, "/locks/violations")
        assert not violations, violations
        both = before & self._running()
        owners: dict[tuple[str, str], set[str]] = {}
        for entry in json.loads(text)["Data"]["PodDeviceEntries"] or ():
            for device in {one for ids in entry["DeviceIDs"].values() for one in ids}:
                if entry["PodUID"] in both:
                    place = entry["ResourceName"], device
                    owners.setdefault(place, set()).add(entry["PodUID"])
        assert [] == [one for one in owners.items() if len(one[1]) > 1]
        self.checks += 1

    def _running(self) -> set[str]:
        found = self._here.kubectl.get(*self._here.kubectl.within("pods"))["items"]
        for one in found:
            if reason := one["status"].get("reason"):
                self._rejected[one["metadata"]["uid"]] = reason
        return {
            one["metadata"]["uid"]
            for one in found
            # The locks see those that are being deleted.
            if is_running(one) and "deletionTimestamp" not in one["metadata"]
        }

    def settle(self) -> None:
        """Wait until all devices are allocatable, and check what cannot be checked on the way."""
        started = monotonic()
        self._here.wait_ready()
        self._simulated.here.wait_ready()
        self._gopher.wait_allocatable(self._resources[0], len(self._files))
        self._simulated.wait_allocatable(self._resources[1], 2)
        self.slowest = max(self.slowest, monotonic() - started)
        self._check_kubelet()
        self.check()
        self._check_pod_resources()
        status = "print(open('/proc/1/status').read())"
        said = self._here.execute("python3", "-c", status).splitlines()
        self.memory += [int(line.split()[1]) for line in said if line.startswith("VmRSS")]

    def _check_pod_resources(self) -> None:
        """Fail if the kubelet lists a device twice."""
        lines = self._here.execute("python3", "-c", HOLDERS).splitlines()
        holders: dict[tuple[str, str], set[str]] = {}
        for line in lines:
            namespace, name, resource, device = line.split()
            if resource in self._resources:
                holders.setdefault((resource, device), set()).add(f"{namespace}/{name}")
        assert [] == [one for one in holders.items() if len(one[1]) > 1]

    # All of it

    def run(self, seconds: float, say: Callable[[str], None]) -> None:
        """Do faults for so long."""
        often = (self.plain, self.several, self.restarting, self.init, self.sidecar, self.file)
        sometimes = (self.kill, self.socket, self.kubelet)
        rarely = (self.pod, self.rollout, self.cordon, self.kubelet_away)
        kinds = [*often * 4, self.delete, *[self.delete] * 11, *sometimes * 2, *rarely]
        end, since = monotonic() + seconds, 0
        while monotonic() < end:
            fault = self._random.choice(kinds)
            fault()
            self.faults[fault.__name__] += 1
            since += 1
            if fault in (*sometimes, *rarely) or since > 10:
                self.check()
            if since > 20:
                self.settle()
                since = 0
                say(self.summary())
        self.settle()

    def summary(self) -> str:
        rejected = Counter(self._rejected.values())
        return (
            f"{self.faults.total()} faults, {self.checks} checks, {self._number} pods, all devices"
            f" back within {self.slowest:.1f} s, plugin {min(self.memory) // 1024} to"
            f" {max(self.memory) // 1024} MiB; faults {dict(self.faults.most_common())};"
            f" pods rejected {dict(rejected)}"
        )
