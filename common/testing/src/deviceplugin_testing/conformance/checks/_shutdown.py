"""Shutdown: the reaction to SIGTERM, by which Kubernetes stops a container."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.proto.v1beta1 import KUBELET_SOCKET
from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._trial import Trial

GROUP: Final = CheckGroup("shutdown", "Shutdown")

_AT_LEAST: Final = 0.2
"""Least seconds between the end of the kubelet and SIGTERM."""


@dataclass(frozen=True, slots=True)
class Stop:
    took: float | None
    """Seconds to the end of the process; None if it had to be killed."""
    status: int | None
    sockets: Sequence[str]


def stop(trial: Trial) -> Stop:
    node = trial.fresh()
    plugin = node.plugin
    if plugin is None:
        raise NotApplicable("not started")
    took = plugin.terminate(trial.limits.stop * 2)
    status, left = plugin.status, sockets(node.kubelet.plugin_dir)
    return Stop(took, status, left)


def sockets(directory: Path) -> list[str]:
    """Return the names of all sockets in ``directory`` but the kubelet's."""
    names = [path.name for path in directory.iterdir() if path.is_socket()]
    return sorted(set(names) - {KUBELET_SOCKET})


def _ended(trial: Trial) -> Stop:
    seen = trial.once(stop)
    if seen.took is None:
        raise NotApplicable("it did not end")
    return seen


@GROUP.check(
    "in-time",
    "Ends soon after SIGTERM",
    why="Kubernetes kills it after a grace period, which an update then spends on every node.",
)
def _in_time(trial: Trial) -> str:
    took = trial.once(stop).took
    if took is None or took > trial.limits.stop:
        raise Failed(f"did not end within {trial.limits.stop:g} s")
    return f"ended after {took:.2f} s"


@GROUP.check(
    "status",
    "Exits with status 0 after SIGTERM",
    why="Monitoring takes any other status for a failure.",
)
def _status(trial: Trial) -> str:
    status = _ended(trial).status
    if status != 0:
        by = "killed by the signal" if status is not None and status < 0 else f"status {status}"
        raise Failed(by)
    return "status 0"


@GROUP.check(
    "socket-removed",
    "Removes its socket when it ends",
    why="Sockets that nobody serves pile up in the kubelet's directory until it restarts.",
)
def _socket_removed(trial: Trial) -> str:
    left = _ended(trial).sockets
    if left:
        raise Failed(f"left {', '.join(left)}")
    return "left no socket"


@GROUP.check(
    "without-kubelet",
    "Ends equally soon while there is no kubelet",
    why="A plugin that ignores SIGTERM while it retries is killed after the grace period.",
)
def _without_kubelet(trial: Trial) -> str:
    took = trial.once(stop).took
    if took is None or took > trial.limits.stop:
        raise NotApplicable("it does not with a kubelet")
    node = trial.node()
    node.kubelet.stop()
    node.observe(max(_AT_LEAST, trial.limits.settle))
    took = node.terminate(trial.limits.stop)
    if took is None:
        raise Failed(f"did not end within {trial.limits.stop:g} s while there was no kubelet")
    return f"ended after {took:.2f} s"
