"""Where pods may be, as controllers and the scheduler say, and what kubelets say of them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.kinds import Object

RESOURCE = "example.com/simple-device"


@dataclass(frozen=True)
class Life:
    """What becomes of a pod."""

    ready: bool = True
    devices: int = 0
    resource: str = RESOURCE
    said: str = ""
    driver: str = ""
    """The DRA driver by which it offers them; by default it is a device plugin."""
    publishes: bool = True
    """Whether it can write slices."""
    withdraws: bool = True
    """Whether the kubelet learns that it does not offer devices as a device plugin."""


def as_configured(_node: str, config: Mapping[str, Any]) -> Life:
    """Have a pod offer as many devices as its configuration says; a profile is one too many."""
    if config.get("seed") == 13:
        return Life(ready=False, said="unlucky seed")
    driver = config["driver-name"] if config.get("protocol") == "dra" else ""
    count, resource = config.get("number-devices", 2), config.get("resource", RESOURCE)
    return Life(devices=count, resource=resource, driver=driver)


def slice_of(node: str, life: Life, held: int = 0) -> Object:
    """Return what a plugin publishes, of whose devices some are held through the device plugin."""
    attributes = {"resource": {"string": life.resource}}
    devices: list[Object] = [
        {"name": f"d{number}", "attributes": attributes} for number in range(life.devices)
    ]
    for one in devices[:held]:
        one["taints"] = [{"key": f"{life.driver}/held", "effect": "NoSchedule"}]
    pool = {"name": f"{node}/{life.resource}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": life.driver, "nodeName": node, "pool": pool, "devices": devices}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**head, "metadata": {"name": node}, "spec": spec}


def is_ready(pod: Object) -> bool:
    """Return whether a pod is ready, and not about to end."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


def node_condition(kind: str, status: str) -> Object:
    """Return a condition that was reported just now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    times = {"lastTransitionTime": now, "lastHeartbeatTime": now}
    return {"type": kind, "status": status, "reason": "Played", "message": "", **times}


def lived(*, ready: bool, said: str) -> Object:
    """Return the status of a pod that runs, or whose container has ended with a message."""
    state: Object = {"running": {}}
    if said:
        state = {"terminated": {"exitCode": 2, "reason": "Error", "message": said}}
    own = {
        "name": "device-plugin",
        "ready": ready,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        "state": state,
    }
    condition = node_condition("Ready", str(ready))
    del condition["lastHeartbeatTime"]
    return {"phase": "Running", "conditions": [condition], "containerStatuses": [own]}


def mounted(pod: Object) -> str:
    """Return the configuration file that a pod of the operator has, as a kubelet writes it."""
    assert not [one for one in pod["spec"]["volumes"] if "configMap" in one]
    (volume,) = (one for one in pod["spec"]["volumes"] if "downwardAPI" in one)
    (item,) = volume["downwardAPI"]["items"]
    key = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
    return str(pod["metadata"]["annotations"][key])


def fits(spec: Object, node: Object) -> bool:
    """Return whether selector and affinity of a pod let it be on ``node``."""
    labels = node["metadata"]["labels"]
    if not spec.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in terms.get("nodeSelectorTerms", ()):
        for one in term["matchExpressions"]:
            inside = labels.get(one["key"]) in one["values"]
            if inside != (one["operator"] == "In"):
                return False
    return True


def is_kept_away(spec: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a pod cannot be where one with ``labels`` is."""
    apart = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return any(one["labelSelector"]["matchLabels"].items() <= labels.items() for one in apart)
