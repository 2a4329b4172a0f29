"""Where pods may be, as controllers and the scheduler say, and what kubelets say of them."""

import time
from collections.abc import Mapping

from cluster.kinds import Object


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
