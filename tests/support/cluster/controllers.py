"""The controllers of the stand-in for a cluster: namespaces, garbage, pods, claims, the scheduler.

Each looks at everything there is and does what is to be done next, at every step.
"""

import hashlib
import json
from uuid import uuid4

from typing_extensions import override

from cluster.admission import admit
from cluster.kinds import (
    ACCOUNT,
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    Kind,
    Object,
)
from cluster.store import Store, tell
from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.controllers import (
    ClaimControllers,
    DeviceEviction,
)
from deviceplugin_testing.simulator._control_plane.scheduler.pools import untolerated
from deviceplugin_testing.simulator._control_plane.scheduler.scheduler import Scheduler
from operators.pods import fits, is_ready

_GIVEN = ((ACCOUNT, "default"), (CONFIG_MAP, "kube-root-ca.crt"))
"""What every namespace has."""


class TellingScheduler(Scheduler):
    """The simulated cluster's, which tells of pods that there is no node for."""

    def __init__(self, store: Store) -> None:
        super().__init__(Objects(store))
        self._told = store

    @override
    def _tell(self, pod: Object, message: str) -> None:
        super()._tell(pod, message)
        tell(self._told, pod, "FailedScheduling", message)


def step(store: Store) -> None:
    with store.changed:
        keep_namespaces(store)
        collect_garbage(store)
        for kind in (DAEMON_SET, DEPLOYMENT):
            for owner in store.list(kind):
                keep_pods(store, kind, owner)
        ClaimControllers(Objects(store)).step()
        DeviceEviction(store).step()
        TellingScheduler(store).step()


def keep_namespaces(store: Store) -> None:
    for space in store.list(NAMESPACE):
        name = space["metadata"]["name"]
        if "deletionTimestamp" in space["metadata"]:
            store.change(NAMESPACE, "", name, _terminate)
            empty(store, name)
            continue
        for kind, given in _GIVEN:
            if not store.exists(kind, name, given):
                metadata = {"name": given, "namespace": name}
                made = {"apiVersion": "v1", "kind": kind.name, "metadata": metadata}
                store.create(kind, made)


def _terminate(space: Object) -> None:
    space["status"] = {"phase": "Terminating"}


def empty(store: Store, namespace: str) -> None:
    """Delete what is in the namespace; and the namespace, once nothing is."""
    for kind in KINDS:
        for one in store.list(kind, namespace) if kind.namespaced else ():
            store.delete(kind, namespace, one["metadata"]["name"])
    if not any(store.list(kind, namespace) for kind in KINDS if kind.namespaced):
        store.remove(NAMESPACE, "", namespace)


def collect_garbage(store: Store) -> None:
    """Delete the pods whose owner is gone."""
    owners = [*store.list(DAEMON_SET), *store.list(DEPLOYMENT)]
    there = {one["metadata"]["uid"] for one in owners}
    for pod in store.list(POD):
        theirs = {one["uid"] for one in pod["metadata"].get("ownerReferences", ())}
        if theirs and not theirs & there:
            store.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])


# DaemonSets, and Deployments of one pod, which are the same on one node


def keep_pods(store: Store, kind: Kind, owner: Object) -> None:
    """See that it has its pod, if the node is one of its; an old one goes before the new comes."""
    namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    template = owner["spec"]["template"]
    revision = hashlib.sha1(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    pods = [one for one in store.list(POD, namespace) if _owned(one, owner)]
    there = [one for one in store.list(NODE) if fits(template["spec"], one)]
    tolerations = template["spec"].get("tolerations", ())
    wanted = sum(not untolerated(one["spec"].get("taints", ()), tolerations) for one in there)
    if wanted and not pods:
        _make(store, kind, owner, revision)
    is_elsewhere = kind == DAEMON_SET and not there
    for pod in pods:
        is_over = pod["status"]["phase"] == "Failed" or _revision(pod) != revision or is_elsewhere
        if is_over and "deletionTimestamp" not in pod["metadata"]:
            store.delete(POD, namespace, pod["metadata"]["name"])
    ready = sum(map(is_ready, pods))
    updated = sum(_revision(pod) == revision for pod in pods)
    status = {
        "observedGeneration": owner["metadata"]["generation"],
        "desiredNumberScheduled": wanted,
        "currentNumberScheduled": len(pods),
        "updatedNumberScheduled": updated,
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": wanted - ready,
    }
    if kind == DEPLOYMENT:
        counts = {"replicas": len(pods), "updatedReplicas": updated, "availableReplicas": ready}
        status = {"observedGeneration": owner["metadata"]["generation"], **counts}
    store.change(kind, namespace, name, lambda found: found.update(status=status))


def _owned(pod: Object, owner: Object) -> bool:
    uids = [one["uid"] for one in pod["metadata"].get("ownerReferences", ())]
    return owner["metadata"]["uid"] in uids


def _revision(pod: Object) -> str:
    return str(pod["metadata"]["labels"]["controller-revision-hash"])


def _make(store: Store, kind: Kind, of: Object, revision: str) -> None:
    template, metadata = of["spec"]["template"], of["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": kind.name, "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{uuid4().hex[:5]}",
            "namespace": metadata["namespace"],
            "labels": {**template["metadata"]["labels"], "controller-revision-hash": revision},
            "annotations": template["metadata"].get("annotations", {}),
            "ownerReferences": [owner | {"name": metadata["name"], "uid": metadata["uid"]}],
        },
        "spec": json.loads(json.dumps(template["spec"])),
    }
    admit(store, POD, pod)
    store.create(POD, pod)
