"""The commands of the simulated kubelet."""

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from deviceplugin._platform.clock import MONOTONIC
from deviceplugin_testing.simulator._clock import PATIENCE
from deviceplugin_testing.simulator._kubelet.kubelet import SimulatedKubelet
from deviceplugin_testing.simulator._pods.manifest import ManifestError, load_pods
from deviceplugin_testing.simulator._pods.pod import Pod, PodState, RunOptions
from deviceplugin_testing.tools._console import Command, CommandError, number


def describe(kubelet: SimulatedKubelet) -> dict[str, str]:
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
    known = kubelet.running and not state.terminal
    held = [
        f"{container} has {' '.join(sorted(ids))} of {resource}"
        for container, resources in (kubelet.held(state.pod) if known else {}).items()
        for resource, ids in resources.items()
    ]
    return ", ".join([state.message or state.phase, *held])


class LiveView:
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


class LeapingClock:
    """The real time, plus what has been skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def __call__(self) -> float:
        return MONOTONIC.now() + self._skipped

    def leap(self, seconds: float) -> None:
        self._skipped += seconds


class KubeletCommands:
    def __init__(self, kubelet: SimulatedKubelet, clock: LeapingClock) -> None:
        self._kubelet = kubelet
        self._clock = clock
        self.table: Mapping[str, Command] = {
            name: Command(_guarded(run), words, summary)
            for name, (run, words, summary) in self._commands().items()
        }

    def _commands(self) -> dict[str, tuple[Callable[..., str | None], str, str]]:
        kubelet, pod = self._kubelet, self._pod
        most = f"{PATIENCE:g} s at most"
        return {
            "status": (self._status, "", "show everything"),
            "admit": (
                self._admit,
                "FILE|NAME [RESOURCE=COUNT...]",
                "run the pods of a manifest, or one",
            ),
            "start-container": (self._start_container, "POD CONTAINER", "start a container again"),
            "terminate": (lambda name: kubelet.terminate(pod(name)), "POD", "end a pod"),
            "delete": (lambda name: kubelet.delete(pod(name)), "POD", "remove a pod"),
            "drop": (kubelet.hang_up, "RESOURCE", "close the connection to a plugin"),
            # The kubelet does not notice.
            "delete-socket": (kubelet.kubelet_socket.unlink, "", "delete kubelet.sock"),
            "stop": (kubelet.stop, "", "stop the kubelet as a crash would"),
            "start": (kubelet.start, "", "start it again"),
            "restart": (kubelet.restart, "", "stop and start"),
            "node-status": (self._node_status, "", "update the node status now"),
            "advance": (self._advance, "SECONDS", "advance the clock"),
            "wait": (
                self._wait,
                "RESOURCE COUNT [SECONDS]",
                f"wait for so many healthy devices, {most}",
            ),
        }

    def _status(self) -> str:
        return "\n".join(f"{what}: {text}" for what, text in describe(self._kubelet).items())

    def _admit(self, source: str, *limits: str) -> str:
        is_file = "/" in source or Path(source).suffix in {".yaml", ".yml", ".json"}
        if is_file:
            return "\n".join(self._run(pod) for pod in load_pods(Path(source)))
        return self._run(Pod.of(source, main=dict(_limit(each) for each in limits)))

    def _run(self, pod: Pod) -> str:
        outcome = self._kubelet.run(pod)
        if not outcome:
            raise CommandError(f"{pod.name}: {outcome.reason}: {outcome.message}")
        got = [_options(name, options) for name, options in outcome.options.items()]
        return "\n".join([f"{pod.name}: admitted", *(line for lines in got for line in lines)])

    def _start_container(self, pod: str, container: str) -> str:
        options = self._kubelet.start_container(self._pod(pod), container)
        return "\n".join([f"{container}: started", *_options(container, options)])

    def _pod(self, name: str) -> Pod:
        for state in reversed(self._kubelet.pods):
            if name in {state.pod.name, state.pod.uid}:
                return state.pod
        raise CommandError(f"there is no pod {name!r}")

    def _node_status(self) -> str:
        self._kubelet.tick()
        shown = [line for line in self._status().splitlines() if line.startswith("node ")]
        return "\n".join(shown) or "the node has no devices"

    def _advance(self, seconds: str) -> None:
        self._clock.leap(number(seconds))
        self._kubelet.tick()

    def _wait(self, resource: str, count: str, seconds: str = str(PATIENCE)) -> None:
        wanted = int(number(count))
        self._kubelet.wait(
            lambda: (
                resource in self._kubelet.resources
                and self._kubelet.allocatable(resource) == wanted
            ),
            timeout=number(seconds),
            what=f"{resource} to have {wanted} healthy devices",
        )


def _guarded(run: Callable[..., str | None]) -> Callable[..., str | None]:
    """Return ``run`` with errors of the kubelet and the machine turned into ``CommandError``."""

    def guarded(*words: str) -> str | None:
        try:
            return run(*words)
        except (LookupError, OSError, ValueError, RuntimeError, ManifestError) as error:
            raise CommandError(str(error)) from None

    return guarded


def _limit(text: str) -> tuple[str, int]:
    resource, _, count = text.partition("=")
    if not count.isdecimal():
        raise CommandError(f"{text!r} is not RESOURCE=COUNT")
    return resource, int(count)


def _options(container: str, options: RunOptions | None) -> list[str]:
    if options is None:
        return [f"{container}: no devices"]
    shown = [f"env {name}={value}" for name, value in options.envs.items()]
    shown += [f"mount {m.host_path} on {m.container_path}" for m in options.mounts]
    shown += [f"device {d.host_path} as {d.container_path}" for d in options.devices]
    shown += [f"annotation {name}={value}" for name, value in options.annotations.items()]
    shown += [f"CDI device {name}" for name in options.cdi_devices]
    return [f"{container}: {text}" for text in shown]
