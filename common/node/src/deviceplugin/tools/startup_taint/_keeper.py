"""When the startup taint is removed, and when it is set again."""

import logging
from typing import Any, Final

from deviceplugin._platform.backoff import Backoff
from deviceplugin.apiserver import ApiServerError, ConflictError, ForbiddenError
from deviceplugin.kit.log import Problems
from deviceplugin.tools.startup_taint._node import Node, NodeState
from deviceplugin.tools.startup_taint._readiness import Readiness

log = logging.getLogger(__name__)

AGAIN: Final = 300.0
"""Seconds until a node without the taint is looked at again: one that was deleted and registered
anew has it again, and an administrator may have set it."""
SHOWN: Final = 3.0
"""Seconds between looks at a node that is to show what its kubelet has; it takes up to eleven."""
_FIRST_WAIT: Final = 2.0
_LAST_WAIT: Final = 60.0
_ADVICE: Final = "apply the ClusterRole and its binding of the component startup-taint"


class Keeper:
    """Removes the taint once the plugin is ready and the node shows its devices.

    It has no memory that a restart would lose: what it does follows from how plugin and node are.

    Args:
        node: The node.
        taint: The taint's key, for the log.
        empty_after: Seconds after which a plugin that is ready and has no devices is taken to have
            none on this node.
        after_reboot: Whether the taint is set again on a node that has rebooted since it was
            removed.
    """

    def __init__(
        self, node: Node, taint: str, *, empty_after: float, after_reboot: bool = False
    ) -> None:
        self._node = node
        self._taint = taint
        self._empty_after = empty_after
        self._after_reboot = after_reboot
        self._empty_since: float | None = None
        self._was_ready = False
        self._next_look = self._retry_at = float("-inf")
        self._backoff = Backoff(_FIRST_WAIT, _LAST_WAIT)
        self._waiting = Problems(log, logging.INFO)
        self._failures = Problems(log)

    def act(self, readiness: Readiness, now: float) -> float:
        """Do what is to be done; return the seconds for which nothing can be, whatever happens.

        Args:
            readiness: Of the plugin, at this moment.
            now: Seconds of a clock that never jumps.
        """
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
            text = f"{error}; {_ADVICE}" if isinstance(error, ForbiddenError) else str(error)
            event = "startup taint update failed, retrying"
            self._failures.say("node", event, node=self._node.name, error=text)
            self._retry_at = now + max(self._backoff.next_wait(), error.after)
            return 0.0
        self._failures.over("node")
        if settled:
            self._backoff.reset()
            return AGAIN
        self._next_look = now + (self._backoff.next_wait() if problem else SHOWN)
        return 0.0

    def _emptiness(self, readiness: Readiness, now: float) -> str:
        """Return why a plugin without devices is still waited for; nothing if it is not."""
        if readiness.problem or readiness.resources:
            self._empty_since = None
            return ""
        self._empty_since = now if self._empty_since is None else self._empty_since
        waited = now - self._empty_since >= self._empty_after
        return "" if waited else "the plugin has found no device yet"

    def _settle(self, readiness: Readiness, problem: str) -> bool:
        """Change the node if necessary; return whether nothing is left to do.

        A node that has the taint neither from its kubelet nor since a reboot never gets it here,
        whatever becomes of the plugin: it has pods by now.
        """
        state = self._node.read()
        problem = problem or _not_shown(readiness, state)
        new_boot = self._after_reboot and bool(state.boot) and state.handled != state.boot
        fields: dict[str, Any] = {"node": self._node.name, "taint": self._taint}
        if state.tainted and problem:
            self._waiting.say("taint", "startup taint kept", **fields, error=problem)
            return False
        if problem and new_boot and state.handled:
            self._node.set(state)
            log.info("startup taint set after a reboot", extra=fields)
            return False
        if state.tainted or new_boot:
            self._node.clear(state, state.boot if self._after_reboot else "")
        if state.tainted:
            self._waiting.over("taint")
            resources = ", ".join(sorted(readiness.resources or {})) or "none on this node"
            log.info("startup taint removed", extra={**fields, "resources": resources})
        # It may be away because of a reboot that the node's status does not show yet.
        return not (problem and self._after_reboot)


def _not_shown(readiness: Readiness, state: NodeState) -> str:
    """Return what the node has yet to show of what its kubelet has; nothing if it shows all."""
    if readiness.boot and state.boot and readiness.boot != state.boot:
        return "the node's status is of another boot"
    missing = readiness.missing_on(state.capacity, state.allocatable)
    return f"the node does not show {', '.join(missing)} yet" if missing else ""
