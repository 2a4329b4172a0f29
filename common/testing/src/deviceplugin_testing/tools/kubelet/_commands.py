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


class LeapingClock:
    """The real time, plus what has been skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def __call__(self) -> float:
        """Return seconds."""
        return MONOTONIC.now() + self._skipped

    def leap(self, seconds: float) -> None:
        """Skip ``seconds``."""
        self._skipped += seconds


class KubeletCommands:
    """The commands, by name, in ``table``."""

    def __init__(self, kubelet: SimulatedKubelet, clock: LeapingClock) -> None:
        self._kubelet = kubelet
        self._clock = clock
        self.table: Mapping[str, Command] = {
            name: Command(_guarded(command.run), command.words, command.summary)
            for name, command in self._commands().items()
        }

    def _commands(self) -> dict[str, Command]:
        return {
            "status": Command(self.status, "", "show everything"),
            "admit": Command(
                self.admit, "FILE|NAME [RESOURCE=COUNT...]", "run the pods of a manifest, or one"
            ),
            "start-container": Command(
                self.start_container, "POD CONTAINER", "start a container again"
            ),
            "terminate": Command(self.terminate, "POD", "end a pod"),
            "delete": Command(self.delete, "POD", "remove a pod"),
            "drop": Command(self.drop, "RESOURCE", "close the connection to a plugin"),
            "delete-socket": Command(self.delete_socket, "", "delete kubelet.sock"),
            "stop": Command(self.stop, "", "stop the kubelet as a crash would"),
            "start": Command(self.start, "", "start it again"),
            "restart": Command(self.restart, "", "stop and start"),
            "node-status": Command(self.node_status, "", "update the node status now"),
            "advance": Command(self.advance, "SECONDS", "advance the clock"),
            "wait": Command(
                self.wait,
                "RESOURCE COUNT [SECONDS]",
                f"wait for so many healthy devices, {PATIENCE:g} s at most",
            ),
        }

    def status(self) -> str:
        """Show everything."""
        return "\n".join(f"{what}: {text}" for what, text in describe(self._kubelet).items())

    def admit(self, source: str, *limits: str) -> str:
        """Run pods and show what their containers get."""
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

    def start_container(self, pod: str, container: str) -> str:
        """Start a container and show what it gets."""
        options = self._kubelet.start_container(self._pod(pod), container)
        return "\n".join([f"{container}: started", *_options(container, options)])

    def terminate(self, pod: str) -> None:
        """End a pod."""
        self._kubelet.terminate(self._pod(pod))

    def delete(self, pod: str) -> None:
        """Remove a pod."""
        self._kubelet.delete(self._pod(pod))

    def _pod(self, name: str) -> Pod:
        for state in reversed(self._kubelet.pods):
            if name in {state.pod.name, state.pod.uid}:
                return state.pod
        raise CommandError(f"there is no pod {name!r}")

    def drop(self, resource: str) -> None:
        """Close a connection."""
        self._kubelet.hang_up(resource)

    def delete_socket(self) -> None:
        """Delete kubelet.sock. The kubelet does not notice."""
        self._kubelet.kubelet_socket.unlink()

    def stop(self) -> None:
        """Stop the kubelet."""
        self._kubelet.stop()

    def start(self) -> None:
        """Start the kubelet."""
        self._kubelet.start()

    def restart(self) -> None:
        """Restart the kubelet."""
        self._kubelet.restart()

    def node_status(self) -> str:
        """Update the node status and show it."""
        self._kubelet.tick()
        shown = [line for line in self.status().splitlines() if line.startswith("node ")]
        return "\n".join(shown) or "the node has no devices"

    def advance(self, seconds: str) -> None:
        """Advance the clock."""
        self._clock.leap(number(seconds))
        self._kubelet.tick()

    def wait(self, resource: str, count: str, seconds: str = str(PATIENCE)) -> None:
        """Wait for devices."""
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
