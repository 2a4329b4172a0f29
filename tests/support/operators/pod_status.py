"""What kubelets say of pods and nodes."""

import time

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
