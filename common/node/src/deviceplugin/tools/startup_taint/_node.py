"""The node on the API server: its taints, of which one is ours, and what it shows of devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, UnavailableError

_EFFECT: Final = "NoSchedule"


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node at one moment.

    Attributes:
        version: By which the API server refuses a change of anything older.
        tainted: Whether it has our taint, with any effect.
        others: All its other taints, as they are.
        boot: Which boot the kubelet reports; empty if it does not.
        handled: For which boot our taint was last set or removed; empty if that was never noted.
        capacity: How many devices there are, by resource.
        allocatable: How many of these are healthy.
    """

    version: str
    tainted: bool
    others: tuple[Mapping[str, Any], ...]
    boot: str
    handled: str
    capacity: Mapping[str, Any]
    allocatable: Mapping[str, Any]


class Node:
    """The node ``name``, of which no more is changed than the taint ``key`` and an annotation.

    A change names the version of the node that it is for, so that it never undoes another's.

    Args:
        api: The API server.
        name: The node's name in the cluster.
        key: The taint's, which is the annotation's as well.
    """

    def __init__(self, api: ApiServer, name: str, key: str) -> None:
        self._api = api
        self.name = name
        self._path = f"/api/v1/nodes/{name}"
        self._key = key

    def read(self) -> NodeState:
        """Return how the node is.

        Raises:
            ApiServerError: It could not be asked for.
        """
        node = self._api.get(self._path)
        try:
            metadata, spec, status = node["metadata"], node["spec"], node.get("status") or {}
            taints = spec.get("taints") or []
            return NodeState(
                version=str(metadata["resourceVersion"]),
                tainted=any(taint["key"] == self._key for taint in taints),
                others=tuple(taint for taint in taints if taint["key"] != self._key),
                boot=str((status.get("nodeInfo") or {}).get("bootID", "")),
                handled=str((metadata.get("annotations") or {}).get(self._key, "")),
                capacity=dict(status.get("capacity") or {}),
                allocatable=dict(status.get("allocatable") or {}),
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UnavailableError(f"{self._path}: the answer is not a node") from error

    def clear(self, state: NodeState, boot: str = "") -> None:
        """Remove our taint from the node that was read as ``state``.

        With ``boot`` it is noted on the node that the taint was dealt with for that boot.

        Raises:
            ConflictError: The node has changed meanwhile; nothing was done.
            ApiServerError: It could not be changed.
        """
        self._merge(state, state.others, boot)

    def set(self, state: NodeState) -> None:
        """Add our taint to the node that was read as ``state``, and note its boot.

        Raises as ``clear`` does.
        """
        self._merge(state, (*state.others, {"key": self._key, "effect": _EFFECT}), state.boot)

    def _merge(self, state: NodeState, taints: tuple[Mapping[str, Any], ...], boot: str) -> None:
        metadata: dict[str, Any] = {"resourceVersion": state.version}
        if boot:
            metadata["annotations"] = {self._key: boot}
        spec = {"taints": list(taints) or None}
        self._api.merge(self._path, {"metadata": metadata, "spec": spec})
