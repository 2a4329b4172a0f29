"""Many nodes for the operator, behind the stand-in for an API server.

DaemonSets get pods on all nodes that they are for, and replace none by themselves (``OnDelete``).
What becomes of a pod, a test says: each is ready at once with the devices that its configuration
asks for, unless ``Fleet.behave`` says otherwise. There are no containers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import yaml

from cluster.api_server import KubectlAnswering, server
from cluster.kinds import (
    ACCOUNT,
    CONFIG_MAP,
    DAEMON_SET,
    DEVICE_PLUGIN,
    NAMESPACE,
    NODE,
    NODE_LABELS,
    POD,
    RESOURCE_SLICE,
    Object,
)
from cluster.store import Store
from deviceplugin_testing.simulator._control_plane.quantities import canonical
from operators.pods import Life, as_configured, fits, is_kept_away, is_ready, mounted, slice_of

SPACE = "deviceplugin-operator"


@dataclass
class Fleet:
    """See the module."""

    store: Store = field(default_factory=Store)
    behave: Callable[[str, Mapping[str, Any]], Life] = as_configured
    url: str = ""
    failure: Exception | None = None
    held: Counter[str] = field(default_factory=Counter)
    """By node, how many devices pods hold through the device plugin."""
    claimed: Counter[str] = field(default_factory=Counter)
    """By node, how many devices claims hold."""
    deleted: list[str] = field(default_factory=list)
    """Nodes whose pods were deleted, in order."""
    most_away: int = 0
    """The most nodes that were without a ready pod at once, after all had one."""
    _stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.answering = KubectlAnswering(self.store)
        self.away, self.unknown = self.answering.away, self.answering.unknown
        self.asked, self.policies = self.answering.asked, self.answering.checked.policies

    def node(self, name: str, **labels: str) -> None:
        metadata = {"name": name, "labels": {**NODE_LABELS, **labels}}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": ready}
        self.store.create(NODE, made)

    def set_ready(self, name: str, *, ready: bool) -> None:
        def edit(found: Object) -> None:
            found["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]

        self.store.change(NODE, "", name, edit)

    def label(self, name: str, **labels: str) -> None:
        self.store.change(NODE, "", name, lambda found: found["metadata"]["labels"].update(labels))

    def apply(self, name: str, **spec: Any) -> None:
        """Create an object, or give it another spec."""
        if self.store.exists(DEVICE_PLUGIN, "", name):
            self.store.change(DEVICE_PLUGIN, "", name, lambda found: {**found, "spec": spec})
            return
        made = {
            "apiVersion": DEVICE_PLUGIN.api_version,
            "kind": DEVICE_PLUGIN.name,
            "metadata": {"name": name},
            "spec": spec,
        }
        self.store.create(DEVICE_PLUGIN, made)

    def status(self, name: str) -> Object:
        found: Object = self.store.get(DEVICE_PLUGIN, "", name).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition of what the object is now, or blanks."""
        found = self.store.get(DEVICE_PLUGIN, "", name)
        for one in found.get("status", {}).get("conditions", ()):
            current = one["observedGeneration"] == found["metadata"]["generation"]
            if one["type"] == kind and current:
                return one["status"], one["reason"]
        return "", ""

    def message(self, name: str, kind: str) -> str:
        """Return the message of a condition."""
        conditions = self.status(name).get("conditions", ())
        return next((one["message"] for one in conditions if one["type"] == kind), "")

    def is_ready(self, name: str) -> bool:
        return self.condition(name, "Ready") == ("True", "Ready")

    def pods(self) -> dict[str, Object]:
        """Return the pods by node."""
        return {one["spec"]["nodeName"]: one for one in self.store.list(POD, SPACE)}

    def uids(self) -> dict[str, str]:
        return {node: one["metadata"]["uid"] for node, one in self.pods().items()}

    def daemon_set(self, name: str) -> Object:
        return self.store.get(DAEMON_SET, SPACE, name)

    # What a cluster does

    def step(self) -> None:
        with self.store.changed:
            self._collect_garbage()
            for found in self.store.list(DAEMON_SET, SPACE):
                self._keep(found)
            self._watch_nodes()

    def _collect_garbage(self) -> None:
        kinds = (DEVICE_PLUGIN, DAEMON_SET, CONFIG_MAP, POD)
        there = {one["metadata"]["uid"] for kind in kinds for one in self.store.list(kind)}
        for kind in kinds:
            for one in self.store.list(kind):
                owners = {owner["uid"] for owner in one["metadata"].get("ownerReferences", ())}
                if owners and not owners & there:
                    metadata = one["metadata"]
                    self.store.remove(kind, metadata.get("namespace", ""), metadata["name"])

    def _keep(self, found: Object) -> None:
        spec, uid = found["spec"]["template"]["spec"], found["metadata"]["uid"]
        revision = _hash(found["spec"]["template"])
        own = {one["spec"]["nodeName"]: one for one in self._pods_of(uid)}
        wanted = {one["metadata"]["name"] for one in self.store.list(NODE) if fits(spec, one)}
        for node, pod in own.items():
            leaving = "deletionTimestamp" in pod["metadata"]
            if node not in wanted or leaving:
                if leaving:
                    self.deleted.append(node)
                self.store.remove(POD, SPACE, pod["metadata"]["name"])
                self._set_devices(node, 0, pod["metadata"]["annotations"]["resource"])
        others = {
            one["spec"]["nodeName"]: one["metadata"]["labels"]
            for one in self.store.list(POD, SPACE)
        }
        for node in sorted(wanted - own.keys()):
            if not is_kept_away(spec, others.get(node, {})):
                self._make(found, node, revision)
        self._count(found, revision, wanted)

    def _pods_of(self, uid: str) -> list[Object]:
        pods = self.store.list(POD, SPACE)
        return [one for one in pods if one["metadata"]["ownerReferences"][0]["uid"] == uid]

    def _make(self, found: Object, node: str, revision: str) -> None:
        template = found["spec"]["template"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}
        owner |= {"name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
        labels = {**template["metadata"]["labels"], "controller-revision-hash": revision}
        life = self.behave(node, yaml.safe_load(mounted(template)))
        message = {"message": life.said, "exitCode": 2, "reason": "Error"}
        state = {"lastState": {"terminated": message}} if life.said else {}
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{found['metadata']['name']}-",
                "namespace": SPACE,
                "labels": labels,
                "annotations": {"resource": life.resource},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "containers": template["spec"]["containers"],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": str(life.ready)}],
                "containerStatuses": [{"name": "device-plugin", "state": {}, **state}],
            },
        }
        self.store.create(POD, made)
        if life.ready:
            is_withdrawn = life.driver and life.withdraws
            free = 0 if is_withdrawn else life.devices - self.claimed[node]
            self._set_devices(node, life.devices, life.resource, free)
            if life.publishes:
                self.publish(node, life)

    def publish(self, node: str, life: Life) -> None:
        """Have the slices of a node be those of a plugin, which has none without DRA."""
        if self.store.exists(RESOURCE_SLICE, "", node):
            self.store.remove(RESOURCE_SLICE, "", node)
        if life.driver:
            self.store.create(RESOURCE_SLICE, slice_of(node, life, self.held[node]))

    def _set_devices(
        self, node: str, count: int, resource: str, allocatable: int | None = None
    ) -> None:
        def edit(found: Object) -> None:
            free = count if allocatable is None else allocatable
            for amounts, number in (("capacity", count), ("allocatable", free)):
                shown = found["status"].setdefault(amounts, {"memory": "16Gi"})
                shown[resource] = canonical(number)

        if self.store.exists(NODE, "", node):
            self.store.change(NODE, "", node, edit)

    def _count(self, found: Object, revision: str, wanted: set[str]) -> None:
        own = self._pods_of(found["metadata"]["uid"])
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(own),
            "updatedNumberScheduled": sum(
                one["metadata"]["labels"]["controller-revision-hash"] == revision for one in own
            ),
            "numberMisscheduled": 0,
            "numberReady": sum(map(is_ready, own)),
        }
        name = found["metadata"]["name"]
        self.store.change(DAEMON_SET, SPACE, name, lambda one: one.update(status=status))

    def _watch_nodes(self) -> None:
        """Note how many nodes are without the plugin, of those that had it."""
        pods = self.pods()
        away = [node for node in {*self.deleted} if node not in pods or not is_ready(pods[node])]
        self.most_away = max(self.most_away, len(away))

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                before = self.store.version
                self.step()
                self.store.wait(before, 0.05)
                if self.unknown:  # whose watches end
                    self.store.changed.poke()
        except Exception as error:
            self.failure = error
            raise


def _hash(template: Object) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


@contextmanager
def running(nodes: int = 1) -> Iterator[Fleet]:
    """Serve a fleet of ``nodes``, until the end."""
    fleet = Fleet()
    for name in (SPACE, "default"):
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {}}}
        fleet.store.create(NAMESPACE, space)
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    fleet.store.create(
        ACCOUNT, {**account, "metadata": {"name": "device-plugin", "namespace": SPACE}}
    )
    for number in range(nodes):
        fleet.node(f"node-{number}")
    api_server = server(fleet.answering)
    api_server.start()
    fleet.url = api_server.url
    thread = Thread(target=fleet.run)
    thread.start()
    try:
        yield fleet
    finally:
        fleet._stop.set()
        api_server.stop()
        thread.join()
    assert not api_server.crashes, repr(api_server.crashes)
    if fleet.failure is not None:
        raise fleet.failure
