"""Showing changes of the simulated node as lines of text."""

import math
import threading
from collections.abc import Callable, Mapping

from deviceplugin_testing.simulator._kubelet.kubelet import SimulatedKubelet
from deviceplugin_testing.simulator._pods.pod import PodState


def describe(kubelet: SimulatedKubelet) -> dict[str, str]:
    """Return the state of the node: a line for each subject."""
    seen = {"kubelet": f"listening on {kubelet.kubelet_socket}" if kubelet.running else "stopped"}
    if kubelet.busy_with:
        seen["busy"] = kubelet.busy_with
    for resource in sorted(kubelet.resources):
        seen[resource] = _devices(kubelet, resource)
    for resource, capacity in sorted(kubelet.node.capacity.items()):
        allocatable = kubelet.node.allocatable[resource]
        seen[f"node {resource}"] = f"capacity {capacity}, allocatable {allocatable}"
    for state in kubelet.pods:
        seen[f"pod {state.pod.name}"] = _pod(kubelet, state)
    return seen


def _devices(kubelet: SimulatedKubelet, resource: str) -> str:
    connected = "registered" if resource in kubelet.registered else "not connected"
    healthy, unhealthy = kubelet.healthy(resource), kubelet.unhealthy(resource)
    return f"{connected}, {_ids('healthy', healthy)}, {_ids('unhealthy', unhealthy)}"


def _ids(word: str, ids: frozenset[str]) -> str:
    return f"{len(ids)} {word}" + (f" ({' '.join(sorted(ids))})" if ids else "")


def _pod(kubelet: SimulatedKubelet, state: PodState) -> str:
    held = [
        f"{container} has {' '.join(sorted(ids))} of {resource}"
        for container, resources in _held(kubelet, state).items()
        for resource, ids in resources.items()
    ]
    return ", ".join([state.message or state.phase, *(() if state.terminal else held)])


def _held(kubelet: SimulatedKubelet, state: PodState) -> Mapping[str, Mapping[str, frozenset[str]]]:
    return kubelet.held(state.pod) if kubelet.running else {}


class LiveView:
    """Shows every change as it happens."""

    def __init__(self, kubelet: SimulatedKubelet, show: Callable[[str], None]) -> None:
        self._kubelet = kubelet
        self._show = show
        self._seen: dict[str, str] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="live-view")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._closed = True
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._show_changes(self._kubelet.wait(self._news, timeout=math.inf))

    def _news(self) -> dict[str, str]:
        """Return the state of the node; an empty dict if that has been shown already."""
        now = describe(self._kubelet)
        return now if self._closed or now != self._seen else {}

    def _show_changes(self, now: dict[str, str]) -> None:
        before, self._seen = self._seen, now
        for subject, text in now.items():
            if before.get(subject) != text:
                self._show(f"{subject}: {text}")
        for subject in sorted(before.keys() - now.keys()):
            self._show(f"{subject}: gone")
