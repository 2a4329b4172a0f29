"""Pods that a controller replaces, each with one device, and what is known of who holds what."""

import json
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from typing import Any

from homes.cluster.deployed import Deployed


class Workload:
    """A Deployment of pods like ``pod``, with its name."""

    def __init__(self, here: Deployed, pod: dict[str, Any], replicas: int) -> None:
        self._here, self._replicas = here, replicas
        self.name = str(pod["metadata"]["name"])
        pod["spec"]["restartPolicy"] = "Always"
        labels = {**pod["metadata"]["labels"], "workload": self.name}
        template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"workload": self.name}},
            "template": template,
        }
        here.deployments.append(self.name)
        self._apply("apps/v1", "Deployment", self.name, spec)

    def _apply(self, version: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": self._here.namespace}
        made = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        self._here.kubectl.apply(made)

    def scale(self, replicas: int) -> None:
        """Have so many pods."""
        self._replicas = replicas
        words = ("scale", "deployment", self.name, f"--replicas={replicas}")
        self._here.kubectl.own(*words)

    def guard(self) -> None:
        """Let none of its pods be evicted, by a PodDisruptionBudget."""
        selector = {"matchLabels": {"workload": self.name}}
        spec = {"minAvailable": self._replicas, "selector": selector}
        self._apply("policy/v1", "PodDisruptionBudget", self.name, spec)

    def unguard(self) -> None:
        words = ("delete", "poddisruptionbudget", self.name)
        self._here.kubectl.own(*words)

    def remove(self) -> None:
        self._here.delete_deployment(self.name)

    def pods(self) -> list[dict[str, Any]]:
        """Return those of its pods that are there and have not failed."""
        found = self._here.kubectl.pods(f"workload={self.name}")
        return [one for one in found if one["status"]["phase"] != "Failed"]

    def wait_running(self, besides: Collection[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        """Wait until all of its pods run, and return them.

        Containers of ``besides`` are known to have ended: their status may say so late.
        """
        ended = {one for pod in besides for one in started(pod)}
        found: list[dict[str, Any]] = []

        def are_running() -> bool:
            found[:] = [one for one in self.pods() if is_running(one) and not started(one) & ended]
            return len(found) == self._replicas

        self._here.wait(are_running, f"{self._replicas} of {self.name} to run")
        return found


def is_running(pod: dict[str, Any]) -> bool:
    """Return whether all containers of the pod run."""
    statuses = pod["status"].get("containerStatuses", ())
    running = bool(statuses) and all("running" in one["state"] for one in statuses)
    return pod["status"]["phase"] == "Running" and running


def started(pod: dict[str, Any]) -> set[tuple[str, str]]:
    """Return what is other once the pod was replaced, or one of its containers."""
    containers = {one["containerID"] for one in pod["status"]["containerStatuses"]}
    return {(pod["metadata"]["uid"], one) for one in containers}


def told_devices(pod: dict[str, Any], resource: str) -> Iterator[str]:
    """Return the ids that the kubelet says in the pod's status; none before Kubernetes 1.36."""
    for status in pod["status"].get("containerStatuses", ()):
        for one in status.get("allocatedResourcesStatus", ()):
            if one["name"] == resource:
                yield from (device["resourceID"] for device in one["resources"])


def devices(here: Deployed, pattern: str) -> list[dict[str, Any]]:
    """Return what the plugin says of the devices of a resource."""
    resources = json.loads(here.ask("devices"))["resources"]
    matching = (one["devices"] for one in resources if fnmatch(one["name"], pattern))
    return [device for found in matching for device in found]


def wait_holders(here: Deployed, resource: str, pods: Collection[str]) -> dict[str, set[str]]:
    """Wait until the plugin says what each of ``pods`` holds, and return the ids by pod."""
    found: dict[str, set[str]] = {}

    def are_known() -> bool:
        found.clear()
        for device in devices(here, resource):
            for holder in device["holders"] or ():
                if holder["namespace"] == here.namespace:
                    found.setdefault(holder["pod"], set()).add(device["id"])
        return set(pods) <= set(found)

    here.wait(are_known, f"the plugin to say what {', '.join(pods)} hold")
    return found
