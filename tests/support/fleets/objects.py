"""Nodes, pods and DevicePlugin objects, and an API server that has them."""

from collections.abc import Callable, Sequence
from typing import Any

from cluster.scripted_api import Answer, Asked
from deviceplugin.tools._node_devices import API

Object = dict[str, Any]
Run = Callable[..., tuple[int, str, str]]
"""Runs a command with arguments: exit status, output, errors."""
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
OBJECTS = "/apis/deviceplugin.dev/v1alpha1/deviceplugins"
FORBIDDEN = Answer(403, 'User "me" cannot list resource')
NONE = Answer(404, "the server could not find the requested resource")


def node(name: str, ready: str = "True", **devices: tuple[int, int]) -> Object:
    """Return a node with devices of ``example.com``: how many are healthy, of how many."""
    amounts = [{"cpu": "8", "memory": "16Gi"}, {"cpu": "8", "memory": "16Gi"}]
    for resource, pair in devices.items():
        for where, count in zip(amounts, pair, strict=True):
            where[f"example.com/{resource}"] = (
                f"{count // 1000}k" if count % 1000 == 0 < count else str(count)
            )
    condition = {"type": "Ready", "status": ready, "reason": "KubeletReady"}
    if ready != "True":
        condition["reason"] = "NodeStatusUnknown"
    conditions = [{"type": "DiskPressure", "status": "False"}, condition]
    status = {"allocatable": amounts[0], "capacity": amounts[1], "conditions": conditions}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def container(restarts: bool = False, **devices: int) -> Object:
    limits = {f"example.com/{name}": str(count) for name, count in devices.items()}
    always = {"restartPolicy": "Always"} if restarts else {}
    return {"resources": {"limits": limits, "requests": {"cpu": "500m"}}, **always}


def pod(place: str, *containers: Object, first: Sequence[Object] = ()) -> Object:
    """Return a pod on a node, with containers and what runs before them."""
    spec: Object = {"nodeName": place, "containers": list(containers)}
    if first:
        spec["initContainers"] = list(first)
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"}}


def plugin_object(name: str, reason: str = "Ready", message: str = "", **status: Any) -> Object:
    """Return an object of the operator, which is ready unless there is another reason."""
    condition = {"type": "Ready", "status": str(reason == "Ready"), "reason": reason}
    condition |= {"message": message, "observedGeneration": status.pop("observed", 2)}
    metadata = {"name": name, "generation": 2}
    return {
        "metadata": metadata,
        "spec": {"plugin": "gpu"},
        "status": {"conditions": [{"type": "Accepted"}, condition], **status},
    }


def page(items: Sequence[Object], rest: str = "", left: int = 0) -> Answer:
    """Return a page of a list, with what asks for the next one."""
    metadata: Object = {"resourceVersion": "9"}
    if rest:
        metadata |= {"continue": rest, "remainingItemCount": left}
    return Answer.of({"metadata": metadata, "items": list(items)})


def having(
    nodes: Sequence[Object] | Answer = (),
    pods: Sequence[Object] | Answer = (),
    objects: Sequence[Object] | Answer = NONE,
    **dra: Sequence[Object] | Answer,
) -> Callable[[Asked], Answer]:
    """Return the answers of an API server that has these, or answers so when asked for a list.

    ``dra`` has objects of DRA by their plural.
    """
    lists = {NODES: nodes, PODS: pods, OBJECTS: objects}
    lists |= {f"{API}/{plural}": found for plural, found in dra.items()}

    def answer(asked: Asked) -> Answer:
        found = lists.get(asked.path, NONE)
        if isinstance(found, Answer):
            return found
        wanted = asked.query.get("fieldSelector", "")
        for key, read in _FIELDS.items():
            for term in wanted.split(","):
                if term.startswith(f"{key}="):
                    value = term.removeprefix(f"{key}=")
                    found = [one for one in found if read(one) == value]
        return page(found)

    return answer


_FIELDS: dict[str, Callable[[Object], Any]] = {
    "metadata.name": lambda one: one["metadata"]["name"],
    "spec.nodeName": lambda one: one["spec"].get("nodeName"),
}
