"""What must hold on a node in trouble, seen from outside."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from time import monotonic, sleep
from typing import Any, Final

from homes.chaos.comparison import differences, shared
from homes.chaos.scripts import VITALS
from homes.chaos.seen import GOPHERS, OTHERS, Seen
from homes.chaos.witness import Witness
from homes.cluster.deployed import PLUGIN, Deployed, why_it_waits
from homes.cluster.home import Cluster
from homes.cluster.node import as_number
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

    def __init__(
        self,
        killed: Cluster,
        spared: Cluster,
        witness: Witness,
        patience: float,
        *,
        has_dra: bool,
    ) -> None:
        self._killed, self._spared = killed, spared
        self._here, self._witness, self._patience = killed.here, witness, patience
        claims = ",resourceslices,resourceclaims" if has_dra else ""
        self._kinds = f"pods,nodes{claims}"
        self._pods: dict[str, list[dict[str, Any]]] = {}
        """Of each plugin, by namespace."""
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

    # All of it

    def look(self, expected: Mapping[str, AbstractSet[str]], image: str) -> list[str]:
        """Return what is not as it should be, of the devices that there are, and of the plugins.

        ``image`` is that of the plugin that is killed.
        """
        words = ("get", self._kinds, "--all-namespaces", "--output=json")
        objects = json.loads(self._here.kubectl(*words, check=False) or '{"items": []}')["items"]
        spaces = [one.here.namespace for one in (self._killed, self._spared)]
        plugins = [_plugins(objects, one) for one in spaces]
        self._pods = dict(zip(spaces, plugins, strict=True))
        found = [*self._not_ready(spaces, plugins, image)]
        addresses = [one["status"].get("podIP", "") for pods in plugins for one in pods]
        node = {} if found else self._witness.seen(*addresses)
        if not node:
            return found or ["the kubelet or a plugin does not answer"]
        violations = [f"a lock is taken: {one}" for one in node["violations"].splitlines()]
        seen = self._seen(expected, objects, node)
        return [*violations, *differences(seen), *self._not_allocatable(objects, node)]

    def _seen(self, expected: Any, objects: list[dict[str, Any]], node: dict[str, Any]) -> Seen:
        own = [
            one
            for one in of_kind(objects, "Pod", self._here.namespace)
            if "deletionTimestamp" not in one["metadata"]
        ]
        waiting = {
            one["metadata"]["name"]: why_it_waits(one) or "unknown"
            for one in own
            if one["status"]["phase"] == "Pending" and "nodeName" in one["spec"]
        }
        slices = of_kind(objects, "ResourceSlice")
        return Seen(
            expected,
            [one for one in own if is_running(one)],
            waiting,
            node,
            {resource: node["served"].get(resource, []) for resource in expected},
            [one for one in slices if one["spec"]["driver"] == DRIVER],
            of_kind(objects, "ResourceClaim", self._here.namespace),
            DRIVER,
        )

    def _not_ready(
        self, spaces: list[str], plugins: list[list[dict[str, Any]]], image: str
    ) -> Iterator[str]:
        """Yield why plugins are not there, and delete a pod whose container started too late.

        After the clock was ahead, that is later than now, and until that time has come the kubelet
        does not probe the container. Its devices are there, but the pod is not ready.
        """
        for space, pods in zip(spaces, plugins, strict=True):
            statuses = [one for pod in pods for one in pod["status"].get("containerStatuses", ())]
            if len(pods) != 1 or [True] != [one["ready"] for one in statuses]:
                yield f"{space} has not one plugin that is ready, but {statuses}"
            for pod in pods if any(map(is_of_the_future, statuses)) else ():
                words = ("delete", "pod", pod["metadata"]["name"], f"--namespace={space}")
                self._here.kubectl(*words, "--wait=false")
        images = {one["image"] for pod in plugins[0] for one in pod["spec"]["containers"]}
        if images != {image}:
            yield f"the plugin has the images {images}, not {image}"

    def _not_allocatable(self, objects: list[Any], node: dict[str, Any]) -> Iterator[str]:
        """Yield how the node's status differs from the kubelet."""
        (found,) = (
            one["status"]["allocatable"]
            for one in of_kind(objects, "Node")
            if one["metadata"]["name"] == self._killed.node
        )
        offered = Counter(resource for resource, _ in node["offered"])
        for resource in (GOPHERS, OTHERS):
            if as_number(found.get(resource, "0")) != offered[resource]:
                count = found.get(resource)
                yield f"{count} of {resource} are allocatable, the kubelet has {offered[resource]}"

    def settled(self, expected: Mapping[str, AbstractSet[str]], image: str) -> None:
        """Wait until all is there again and agrees, and check what cannot be checked on the way."""
        started = monotonic()
        end = started + self._patience
        while (found := self.look(expected, image)) and monotonic() < end:
            sleep(1)
        assert not found, "\n".join([f"after {self._patience:.0f} s:", *found])
        self.comparisons += 1
        self.last = monotonic() - started
        self.slowest = max(self.slowest, self.last)
        self.kubelet()
        self._restarts(self._here, allowed=True)
        self._restarts(self._spared.here, allowed=not self.is_spared)
        if self.is_spared:
            self.vitals.append(vitals(self._spared.here))

    def _restarts(self, here: Deployed, *, allowed: bool) -> None:
        """Fail if a plugin's container has ended otherwise than by being killed."""
        for pod in self._pods[here.namespace]:
            for status in pod["status"].get("containerStatuses", ()):
                ended = status.get("lastState", {}).get("terminated")
                assert not ended or (allowed and _was_killed(ended)), (here.namespace, ended)

    def flat(self) -> None:
        """Fail if the plugin that lives on has grown all along."""
        if len(self.vitals) < ENOUGH or not self.is_spared:
            return
        for name in ("memory", "threads", "files"):
            values = [getattr(one, name) for one in self.vitals]
            assert growth(values) < GROWTH, (name, values)


def of_kind(objects: list[Any], kind: str, namespace: str = "") -> list[dict[str, Any]]:
    """Return those of a kind, of one namespace or of all."""
    return [
        one
        for one in objects
        if kind == one["kind"] and namespace in {"", one["metadata"].get("namespace")}
    ]


def _plugins(objects: list[Any], namespace: str) -> list[dict[str, Any]]:
    """Return a plugin's pods that are not being deleted."""
    key, _, value = PLUGIN.partition("=")
    return [
        one
        for one in of_kind(objects, "Pod", namespace)
        if one["metadata"].get("labels", {}).get(key) == value
        and "deletionTimestamp" not in one["metadata"]
    ]


def is_of_the_future(status: dict[str, Any]) -> bool:
    """Return whether a container has started a minute later than now, or more."""
    text = status.get("state", {}).get("running", {}).get("startedAt")
    return text is not None and datetime.fromisoformat(text) > datetime.now(UTC) + _MINUTE


def _was_killed(ended: dict[str, Any]) -> bool:
    """Return whether a container was killed, or the runtime could not even start it."""
    reason = ended.get("reason")
    # A kubelet was restarted, or a runtime that did not see the end, as of all that a reboot ends.
    is_unseen = reason in {"StartError", "Unknown"}
    return is_unseen or bool(ended["exitCode"] == KILLED and reason != "OOMKilled")
