"""What must hold on a node in trouble, seen from outside."""

import json
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from time import monotonic, sleep
from typing import Any, Final

from homes.chaos.comparison import GOPHERS, OTHERS, Seen, differences, shared
from homes.chaos.scripts import VITALS
from homes.chaos.witness import Witness
from homes.cluster.deployed import PLUGIN, Deployed, why_it_waits
from homes.cluster.home import Cluster
from homes.cluster.manifests import CASE
from homes.cluster.switched import DRIVER
from homes.cluster.workload import is_running

KILLED: Final = 137
"""The status of a container that was killed."""
ENOUGH: Final = 24
"""Samples from which growth is told from chance."""
GROWTH: Final = 1.1
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True)
class Vitals:
    """Of a plugin's process."""

    memory: int
    """KiB"""
    threads: int
    files: int


def vitals(here: Deployed) -> Vitals:
    """Return those of the plugin's process."""
    return Vitals(*map(int, here.execute("python3", "-c", VITALS).split()))


def growth(values: list[int]) -> float:
    """Return how much larger ``values`` are in their last quarter than in their second one."""
    quarter = len(values) // 4
    return median(values[-quarter:]) / median(values[quarter : 2 * quarter])


class Checks:
    """Of the plugins in ``killed``, which may be killed, and in ``spared``, which lives on."""

    def __init__(self, killed: Cluster, spared: Cluster, witness: Witness, patience: float) -> None:
        self._killed, self._spared = killed, spared
        self._here, self._witness, self._patience = killed.here, witness, patience
        self.is_spared = True
        """Whether nothing has killed the other plugin yet."""
        self.comparisons = 0
        self._kubelet = ""
        self.count = 0
        self.slowest = self.last = 0.0
        """Seconds until all devices were allocatable again."""
        self.vitals: list[Vitals] = []
        """Of the plugin that lives on."""
        self.rejected: dict[str, str] = {}
        """Why pods were not admitted, by their UIDs."""

    # The kubelet

    def is_new_kubelet(self) -> bool:
        """Return whether there is a kubelet that was not there before."""
        found = self._witness.kubelets()
        if not found or found == self._kubelet:
            return False
        self._kubelet = found
        return True

    def kubelet(self) -> None:
        """Fail if the kubelet is another process."""
        assert self._kubelet == self._witness.kubelets(), "the kubelet has crashed"

    # Devices

    def devices(self) -> None:
        """Fail if a device is in two running pods, by locks or by the kubelet's checkpoint."""
        before = {*self._running()}
        entries = self._witness.checkpoint()
        violations = self._witness.read("/locks/violations")
        assert not violations, violations
        both = before & {*self._running()}
        owners = (
            ((entry["ResourceName"], device), str(entry["PodUID"]))
            for entry in entries
            if entry["PodUID"] in both
            for ids in entry["DeviceIDs"].values()
            for device in ids
        )
        assert {} == shared(owners)
        self.count += 1

    def _running(self) -> dict[str, dict[str, Any]]:
        """Return the pods that run and are not being deleted, by UID."""
        found = self._here.kubectl.get_own("pods")["items"]
        for one in found:
            if reason := one["status"].get("reason"):
                self.rejected[one["metadata"]["uid"]] = reason
        return {
            one["metadata"]["uid"]: one
            for one in found
            # The locks see those that are being deleted.
            if is_running(one) and "deletionTimestamp" not in one["metadata"]
        }

    def seen(self, expected: Mapping[str, AbstractSet[str]]) -> Seen | None:
        """Return what all say now, of the devices that there should be; None if one is away."""
        node, kubectl = self._witness.seen(), self._here.kubectl
        texts = [one.here.ask("devices", check=False) for one in (self._killed, self._spared)]
        if not node or not all(texts):
            return None
        served = {
            resource["name"]: resource["devices"]
            for text in texts
            for resource in json.loads(text)["resources"]
        }
        slices = kubectl("get", "resourceslices", "--output=json", check=False)
        claims = kubectl.own("get", "resourceclaims", "--output=json", check=False)
        return Seen(
            expected,
            [*self._running().values()],
            {
                one["metadata"]["name"]: why_it_waits(one) or "unknown"
                for one in kubectl.pods(CASE)
                if one["status"]["phase"] == "Pending" and "nodeName" in one["spec"]
            },
            node,
            {resource: served.get(resource, []) for resource in expected},
            [one for one in _items(slices) if one["spec"]["driver"] == DRIVER],
            _items(claims),
            DRIVER,
        )

    def _compare(self, expected: Mapping[str, AbstractSet[str]]) -> None:
        """Fail if what all say still differs when one has waited for long."""
        end = monotonic() + self._patience
        found = ["the kubelet or a plugin does not answer"]
        while found and monotonic() < end:
            seen = self.seen(expected)
            found = found if seen is None else differences(seen)
            if found:
                sleep(1)
        assert not found, "\n".join([f"after {self._patience:.0f} s:", *found])
        self.comparisons += 1

    # Plugins

    def _restarts(self, here: Deployed, *, allowed: bool) -> None:
        """Fail if a plugin's container has ended otherwise than by being killed."""
        words = ("pods", f"--selector={PLUGIN}", f"--namespace={here.namespace}")
        for pod in here.kubectl.get(*words)["items"]:
            for status in pod["status"].get("containerStatuses", ()):
                ended = status.get("lastState", {}).get("terminated")
                assert not ended or (allowed and _was_killed(ended)), (here.namespace, ended)

    def _is_probed(self) -> bool:
        """Return whether the plugin's container runs, and delete a pod whose one started too late.

        After the clock was ahead, that is later than now, and until that time has come the kubelet
        does not probe the container. Its devices are there, but the pod is not ready.
        """
        here = self._here
        words = ("pods", f"--selector={PLUGIN}", f"--namespace={here.namespace}")
        statuses = {
            pod["metadata"]["name"]: pod["status"].get("containerStatuses", ())
            for pod in here.kubectl.get(*words)["items"]
        }
        late = [name for name, found in statuses.items() if any(map(is_of_the_future, found))]
        for name in late:
            here.kubectl("delete", "pod", name, f"--namespace={here.namespace}", "--wait=false")
        running = [
            "running" in one.get("state", {}) for found in statuses.values() for one in found
        ]
        return not late and running != [] and all(running)

    def settled(self, expected: Mapping[str, AbstractSet[str]]) -> None:
        """Wait until all is there again and agrees, and check what cannot be checked on the way."""
        started = monotonic()
        self._here.wait(self._witness.is_there, "the witness")
        self._here.wait(self._is_probed, "the plugin's pod to be probed")
        self._here.wait_ready()
        self._spared.here.wait_ready()
        self._compare(expected)
        # The node's status follows.
        offered = Counter(resource for resource, _ in self._witness.seen()["offered"])
        for home, resource in ((self._killed, GOPHERS), (self._spared, OTHERS)):
            home.wait_allocatable(resource, offered[resource])
        self.last = monotonic() - started
        self.slowest = max(self.slowest, self.last)
        self.kubelet()
        self.devices()
        self._restarts(self._here, allowed=True)
        self._restarts(self._spared.here, allowed=not self.is_spared)
        self.vitals.append(vitals(self._spared.here))

    def flat(self) -> None:
        """Fail if the plugin that lives on has grown all along."""
        if len(self.vitals) < ENOUGH or not self.is_spared:
            return
        for name in ("memory", "threads", "files"):
            values = [getattr(one, name) for one in self.vitals]
            assert growth(values) < GROWTH, (name, values)


def _items(text: str) -> list[dict[str, Any]]:
    """Return the objects that kubectl has printed; none where the API server lacks the kind."""
    return [*json.loads(text)["items"]] if text else []


def is_of_the_future(status: dict[str, Any]) -> bool:
    """Return whether a container has started a minute later than now, or more."""
    text = status.get("state", {}).get("running", {}).get("startedAt")
    return text is not None and datetime.fromisoformat(text) > datetime.now(UTC) + _MINUTE


def _was_killed(ended: dict[str, Any]) -> bool:
    """Return whether a container was killed, or the runtime could not even start it."""
    never_ran = ended.get("reason") == "StartError"  # such as when the kubelet is restarted
    return never_ran or bool(ended["exitCode"] == KILLED and ended.get("reason") != "OOMKilled")
