"""Many short pods with devices, while a plugin is switched between the protocols."""

import random
from collections import Counter
from time import monotonic, sleep
from typing import Any, Final

from homes.chaos.scripts import LOCK
from homes.cluster.switched import RESOURCE, Switched

DEVICES: Final = 24
PODS: Final = 60
"""At once, some of which wait for a device."""
EXPECTED: Final = "UnexpectedAdmissionError"
"""A pod was bound to the node before the scheduler knew that its device is gone."""
_PROTOCOLS: Final = ("dra", "device-plugin")
_LONGEST: Final = 12.0
"""Seconds of a pod's program."""
_PAUSE: Final = (4.0, 20.0)
"""Seconds between two switches."""
_CORDONED: Final = 15.0
"""Seconds that a switch needs until the scheduler knows of it: a node says what it has each 10."""
_IMPOSTOR: Final = "impostor"


class SwitchLoad:
    """Pods whose containers lock their devices: one that comes to a locked one leaves a note.

    With ``cordoned`` the node takes no new pods around each switch.
    """

    def __init__(self, switched: Switched, seed: int, *, cordoned: bool) -> None:
        self._switched, self._cordoned = switched, cordoned
        self._here = switched.cluster.here
        self._random = random.Random(seed)
        self._image = self._here.image()
        self._number = 0
        self._failed: dict[str, str] = {}
        """Why pods failed, by their names."""
        self._through: Counter[str] = Counter()
        """Pods that have run, by the protocol that gave them their devices."""
        self._seen: set[str] = set()
        self._per_switch: list[int] = []

    # Pods

    def _pod(self, count: int, seconds: float, **env: str) -> dict[str, Any]:
        self._number += 1
        limits = {RESOURCE: str(count)} if count else {}
        pod = self._switched.cluster.pods.running(f"load-{self._number}", "", limits)
        spec = pod["spec"]
        # A device is free when its container has ended, only if there is a grace period.
        spec["terminationGracePeriodSeconds"] = 2
        del spec["tolerations"]  # with which a pod comes to a cordoned node
        place = {"path": f"{self._here.folder}/locks", "type": "DirectoryOrCreate"}
        spec["volumes"] = [{"name": "locks", "hostPath": place}]
        spec["containers"][0] |= {
            "image": self._image,
            "command": ["python3", "-c", LOCK, f"{seconds:g}"],
            "securityContext": {"runAsUser": 0},
            "env": [{"name": name, "value": text} for name, text in env.items()],
            "volumeMounts": [{"name": "locks", "mountPath": "/locks"}],
        }
        return pod

    def _notes(self) -> str:
        """Return what containers have noted that found the lock of a device taken."""
        path = f"/host/{self._here.namespace}/locks/violations"
        return self._here.on_node(f"test ! -e {path} || cat {path}")

    def _tick(self) -> None:
        """Replace pods that have ended, and end one now and then."""
        alive: list[str] = []
        over: list[str] = []
        for pod in self._switched.pods():
            (over if self._look_at(pod) else alive).append(pod["metadata"]["name"])
        if alive and self._random.random() < 0.5:
            over.append(self._random.choice(alive))
        if over:
            self._switched.delete(*over)
        new = [
            self._pod(self._random.choice((1, 1, 2)), self._random.uniform(0.1, _LONGEST))
            for _ in range(PODS - len(alive))
        ]
        if new:
            self._switched.create(*new)

    def _look_at(self, pod: dict[str, Any]) -> bool:
        """Return whether a pod has ended or is to end, and count it."""
        name, status = pod["metadata"]["name"], pod["status"]
        if "deletionTimestamp" in pod["metadata"]:
            return True
        if status["phase"] == "Failed":
            self._failed[name] = status.get("reason") or str(status.get("containerStatuses"))
        if status["phase"] in {"Running", "Succeeded"} and name not in self._seen:
            self._seen.add(name)
            self._through[_PROTOCOLS["extendedResourceClaimStatus" not in status]] += 1
        return status["phase"] in {"Failed", "Succeeded"}

    def _load(self, seconds: float) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            self._tick()
            sleep(0.5)

    # All of it

    def begin(self) -> None:
        """Have devices, and see a lock that is taken twice noted."""
        self._switched.have([f"g{number}" for number in range(DEVICES)])
        self._switched.create(*(self._pod(0, 600, Gopher=_IMPOSTOR) for _ in range(2)))
        self._here.wait(lambda: _IMPOSTOR in self._notes(), "a lock to be found taken")
        self._here.on_node(f"rm /host/{self._here.namespace}/locks/violations")
        self._switched.delete("load-1", "load-2")
        self._here.wait(lambda: not self._switched.pods(), "the impostors to be gone")

    def run(self, switches: int) -> None:
        """Switch so often at random moments under load, each time to the other protocol."""
        self._load(_PAUSE[1])
        for number in range(switches):
            before = len(self._failed)
            self._switch(_PROTOCOLS[number % 2])
            self._load(self._random.uniform(*_PAUSE))
            self._per_switch.append(len(self._failed) - before)
            assert not (notes := self._notes()), notes

    def _switch(self, protocol: str) -> None:
        if not self._cordoned:
            self._switched.to(protocol)
            return
        kubectl, node = self._switched.cluster.kubectl, self._switched.cluster.node
        kubectl("cordon", node)
        try:
            self._here.wait(self._all_admitted, "the kubelet to have admitted what is bound to it")
            self._switched.to(protocol)
            self._load(_CORDONED)
        finally:
            kubectl("uncordon", node)

    def _all_admitted(self) -> bool:
        """Return whether the kubelet has said something about each pod that is bound."""
        return all(
            pod["status"]["phase"] != "Pending" or "containerStatuses" in pod["status"]
            for pod in self._switched.pods()
            if "nodeName" in pod["spec"]
        )

    def summary(self) -> str:
        """Return what was done and seen."""
        return (
            f"{len(self._per_switch)} switches; {self._number} pods, up to {PODS} at once,"
            f" {DEVICES} devices; seen with devices {dict(self._through)};"
            f" failed {dict(Counter(self._failed.values()))}, per switch {self._per_switch}"
        )

    def end(self) -> None:
        """Check what must hold, with all pods ended."""
        self._switched.release()
        assert not (notes := self._notes()), notes
        assert set(self._failed.values()) <= {EXPECTED}, self._failed
        assert not (self._cordoned and self._failed), self._failed
        assert set(_PROTOCOLS) == set(self._through), "a protocol gave no pod a device"
        self._switched.cluster.wait_allocatable(RESOURCE, DEVICES)
        self._here.wait(lambda: not self._switched.left(), "nothing to be left")
