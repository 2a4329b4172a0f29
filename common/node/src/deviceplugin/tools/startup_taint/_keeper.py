"""When the startup taint is removed and when set again, by what the plugin and the node say."""

import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deviceplugin._platform.backoff import Backoff
from deviceplugin.apiserver import ApiServer, ApiServerError, ConflictError, UnavailableError
from deviceplugin.kit.log import Problems
from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools._plugin_pods import Plugin, advised

log = logging.getLogger(__name__)

_EFFECT: Final = "NoSchedule"

AGAIN: Final = 300.0
"""Seconds until a node without the taint is looked at again: one that was deleted and registered
anew has it again, and an administrator may have set it."""
SHOWN: Final = 3.0
"""Seconds between looks at a node that is to show what its kubelet has; it takes up to eleven."""
_FIRST_WAIT: Final = 2.0
_LAST_WAIT: Final = 60.0
_ADVICE: Final = "apply the ClusterRole and its binding of the component startup-taint"


class NodeState(NamedTuple):
    """The node at one moment. A change of an older ``version`` is refused."""

    version: str
    tainted: bool
    """Whether it has our taint, with any effect."""
    others: tuple[Mapping[str, Any], ...]
    """All its other taints, as they are."""
    boot: str
    """Which boot the kubelet reports; empty if it does not."""
    handled: str
    """For which boot our taint was last set or removed; empty if that was never noted."""
    capacity: Mapping[str, Any]
    """How many devices there are, by resource."""
    allocatable: Mapping[str, Any]
    """How many of these are healthy."""


@dataclass(eq=False, repr=False)
class TaintedNode:
    """The node ``name``, of which no more is changed than the taint ``key`` and an annotation.

    The annotation has the same key. A change names the version of the node that it is for, so that
    it never undoes another's: then ``ConflictError`` is raised, and nothing was done. All methods
    raise ``ApiServerError`` for what cannot be done now.
    """

    api: ApiServer
    name: str
    key: str

    def __post_init__(self) -> None:
        self._path = f"/api/v1/nodes/{self.name}"

    def read(self) -> NodeState:
        node = self.api.get(self._path)
        try:
            metadata, spec, status = node["metadata"], node["spec"], node.get("status") or {}
            taints = spec.get("taints") or []
            return NodeState(
                version=str(metadata["resourceVersion"]),
                tainted=any(taint["key"] == self.key for taint in taints),
                others=tuple(taint for taint in taints if taint["key"] != self.key),
                boot=str((status.get("nodeInfo") or {}).get("bootID", "")),
                handled=str((metadata.get("annotations") or {}).get(self.key, "")),
                capacity=dict(status.get("capacity") or {}),
                allocatable=dict(status.get("allocatable") or {}),
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UnavailableError(f"{self._path}: the answer is not a node") from error

    def change(self, state: NodeState, *, tainted: bool, boot: str) -> None:
        """Remove our taint or set it; with ``boot``, note that it was dealt with for that boot."""
        ours = [{"key": self.key, "effect": _EFFECT}] if tainted else []
        metadata: dict[str, Any] = {"resourceVersion": state.version}
        if boot:
            metadata["annotations"] = {self.key: boot}
        spec = {"taints": [*state.others, *ours] or None}
        self.api.merge(self._path, {"metadata": metadata, "spec": spec})


class Readiness(NamedTuple):
    """Whether a plugin is ready, and for which resources."""

    problem: str = ""
    """Why it is not ready; empty where it is."""
    resources: Mapping[str, bool | None] = MappingProxyType({})
    """Those that have devices, and whether the device plugin offers any of these; None if DRA has
    them all, whose devices are not in a node's status."""
    boot: str = ""
    """The kernel's id of the boot that the plugin runs in; empty if it is not known."""


def readiness(plugin: Plugin) -> Readiness:
    """Return how ready ``plugin`` is. One without an answer is not.

    One that is ready and has no devices has discovered, and found none. With DRA, it is ready once
    it has seen all its slices in the API server since the kubelet registered its driver: slices of
    before a reboot prove nothing, and its own word needs no right to read slices.
    """
    try:
        return plugin.says(_of_page, "/readyz")
    except NoAnswerError as error:
        return Readiness(f"{plugin.url}: {error}")


def _of_page(page: Any) -> Readiness:
    found: dict[str, bool | None] = {}
    if (dra := page.get("dra")) and not dra["published"]:
        raise NoAnswerError(
            f"DRA: slices not published yet{dra['problem'] and ': '}{dra['problem']}"
        )
    for resource in page["resources"]:
        if resource["devices"]:
            if resource["problem"]:  # since it was asked whether it is ready
                raise NoAnswerError(f"{resource['name']}: {resource['problem']}")
            found[str(resource["name"])] = _by_plugin(resource) if resource["registered"] else None
    return Readiness(resources=found, boot=str(page.get("boot", "")))


def _by_plugin(resource: Any) -> bool:
    """Return whether the device plugin offers a device: not one that DRA or an operator has."""
    if "offered" in resource:
        return bool(resource["offered"]["device-plugin"])
    return any(device["healthy"] for device in resource["devices"])  # an older plugin


@dataclass(eq=False, repr=False)
class Keeper:
    """Removes the taint once the plugin is ready and the node shows its devices.

    It has no memory that a restart would lose: what it does follows from how plugin and node are.
    """

    node: TaintedNode
    _: KW_ONLY
    empty_after: float
    """Seconds after which a plugin that is ready and has no devices is taken to have none on this
    node."""
    after_reboot: bool = False
    """Whether the taint is set again on a node that has rebooted since it was removed."""

    def __post_init__(self) -> None:
        self._empty_since: float | None = None
        self._was_ready = False
        self._next_look = self._retry_at = float("-inf")
        self._backoff = Backoff(_FIRST_WAIT, _LAST_WAIT)
        self._waiting = Problems(log, logging.INFO)
        self._failures = Problems(log)

    def act(self, readiness: Readiness, now: float) -> float:
        """Do what is to be done; return the seconds for which nothing can be, whatever happens."""
        emptiness = self._emptiness(readiness, now)
        problem = readiness.problem or emptiness
        became_ready = not problem and not self._was_ready
        self._was_ready = not problem
        if now < self._retry_at or (now < self._next_look and not became_ready):
            return 0.0
        try:
            settled = self._settle(readiness, problem)
        except ConflictError:  # something else of the node has changed, which is usual
            return 0.0
        except ApiServerError as error:
            text = advised(error, _ADVICE)
            event = "startup taint update failed, retrying"
            self._failures.say("node", event, node=self.node.name, error=text)
            self._retry_at = now + max(self._backoff.next_wait(), error.after)
            return 0.0
        self._failures.over("node")
        if settled:
            self._backoff.reset()
            return AGAIN
        self._next_look = now + (self._backoff.next_wait() if problem else SHOWN)
        return 0.0

    def _emptiness(self, readiness: Readiness, now: float) -> str:
        """Return why a plugin without devices is still waited for; empty if it is not."""
        if readiness.problem or readiness.resources:
            self._empty_since = None
            return ""
        self._empty_since = now if self._empty_since is None else self._empty_since
        waited = now - self._empty_since >= self.empty_after
        return "" if waited else "the plugin has found no device yet"

    def _settle(self, readiness: Readiness, problem: str) -> bool:
        """Change the node if necessary; return whether nothing is left to do.

        A node that has the taint neither from its kubelet nor since a reboot never gets it here,
        whatever becomes of the plugin: it has pods by now.
        """
        state = self.node.read()
        problem = problem or _not_shown(readiness, state)
        new_boot = self.after_reboot and bool(state.boot) and state.handled != state.boot
        fields: dict[str, Any] = {"node": self.node.name, "taint": self.node.key}
        if state.tainted and problem:
            self._waiting.say("taint", "startup taint kept", **fields, error=problem)
            return False
        if problem and new_boot and state.handled:
            self.node.change(state, tainted=True, boot=state.boot)
            log.info("startup taint set after a reboot", extra=fields)
            return False
        if state.tainted or new_boot:
            boot = state.boot if self.after_reboot else ""
            self.node.change(state, tainted=False, boot=boot)
        if state.tainted:
            self._waiting.over("taint")
            resources = ", ".join(sorted(readiness.resources)) or "none on this node"
            log.info("startup taint removed", extra={**fields, "resources": resources})
        # It may be away because of a reboot that the node's status does not show yet.
        return not (problem and self.after_reboot)


def _not_shown(readiness: Readiness, state: NodeState) -> str:
    """Return what the node has yet to show of what its kubelet has; nothing if it shows all."""
    if readiness.boot and state.boot and readiness.boot != state.boot:
        return "the node's status is of another boot"
    missing = [
        name
        for name, healthy in sorted(readiness.resources.items())
        if healthy is not None
        # The kubelet writes 0; any other number may have a suffix.
        and str((state.allocatable if healthy else state.capacity).get(name, "0")) == "0"
    ]
    return f"the node does not show {', '.join(missing)} yet" if missing else ""
