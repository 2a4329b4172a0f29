"""The simulated kubelet, for tests and tools."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Self

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._errors import KubeletCrashed, KubeletStopped, PodNotReadyError
from deviceplugin_testing.simulator._kubelet.process import Process
from deviceplugin_testing.simulator._kubelet.view import KubeletView
from deviceplugin_testing.simulator._pods.pod import Outcome, Pod, RunOptions


class SimulatedKubelet(KubeletView):
    """A kubelet that manages devices and nothing else.

    ``with SimulatedKubelet(root) as kubelet: ...`` starts and stops it. Starting it again after a
    stop is a kubelet restart. Any thread may call its methods. Those that need a running kubelet
    raise ``KubeletStopped`` without one, and ``KubeletCrashed`` if the real one would crash.
    """

    # Start and stop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, readmit: bool = True) -> None:
        """Clean the plugin directory and serve. Plugins must register again.

        Existing pods are admitted again at once, probably before their plugins are back. If
        ``readmit`` is false, they wait for a call of ``readmit()``.

        Raises:
            OSError: The directory cannot be cleaned.
            RuntimeError: The kubelet is running already.
        """
        with self._host.changed:
            if self.running:
                raise RuntimeError("the simulated kubelet is running already")
        process = Process(self._host, self._sync_again, dial_timeout=self._dial_timeout)
        process.start()
        with self._host.changed:
            self._process = process
            self._host.notify()
        if readmit:
            self.readmit()

    def stop(self) -> None:
        """Stop as a crash does: all streams break at once, and the sockets stay. Idempotent."""
        with self._host.changed:
            process, self._process = self._process, None
        if process is not None:
            process.die()
            self._host.notify()

    def restart(self, *, readmit: bool = True) -> None:
        """Stop and start. To keep it down for a while, call ``stop`` and ``start``."""
        self.stop()
        self.start(readmit=readmit)

    def reboot(self, *, readmit: bool = True) -> None:
        """Restart the machine: containers, sandboxes and CDI specifications are gone.

        Pods that ran are started again by ``sync()``, which prepares their claims again.
        """
        self.stop()
        with self._host.changed:
            for state in self._host.pods.values():
                if state.started and not state.terminal:
                    state.waiting = [container.name for container in state.pod.all_containers]
                state.running.clear()
                state.sandbox = False
        for directory in self._host.cdi_dirs:
            for path in directory.glob("*"):
                path.unlink()
        self.start(readmit=readmit)

    @contextmanager
    def _alive(self) -> Iterator[Process]:
        """Yield the running process; if it crashes, stop it and record the reason."""
        process = self._live()
        try:
            yield process
        except KubeletCrashed as crash:
            self._host.crashes.append(str(crash))
            self.stop()
            raise

    # Pods

    def admit(self, pod: Pod) -> Outcome:
        """Admit a new pod, which gets its devices now, or reject it.

        It waits for other admissions, and for the plugins without a time limit.
        """
        with self._alive() as process:
            return process.admission.admit(pod)

    def launch(self, pod: Pod) -> Outcome:
        """Admit a new pod, whose containers ``sync()`` starts, and tries again if that fails."""
        outcome = self.admit(pod)
        if outcome:
            with self._host.changed:
                self.pod(pod).waiting = [container.name for container in pod.all_containers]
        return outcome

    def readmit(self) -> list[Outcome]:
        """Admit the pods from before the start that have not ended; return the outcomes.

        Containers that ran at the start keep running; pods that are rejected fail.
        """
        with self._alive() as process:
            return process.admission.readmit()

    def resize(self, pod: Pod) -> Outcome:
        """Run the admission checks for an admitted pod, as an in-place resize does."""
        with self._alive() as process:
            return process.admission.resize(pod)

    def run_options(self, pod: Pod, container: str) -> RunOptions | None:
        """Return what the runtime is asked for, after PreStartContainer if a plugin requires it.

        None if the container gets nothing.

        Raises:
            ContainerStartError: A plugin prevents the start.
        """
        with self._alive() as process:
            return process.workers.run_options(pod, pod.container(container))

    def start_container(self, pod: Pod, container: str) -> RunOptions | None:
        """Start the container, or restart it, and return what it got.

        Before the first start, the pod's claims are prepared, and never again while the pod has
        its sandbox.

        Raises:
            ContainerStartError: A plugin prevents the start, or a CDI device cannot be resolved.
            PodNotReadyError: A claim of the pod cannot be prepared.
        """
        with self._alive() as process:
            return process.workers.start(self.pod(pod), pod.container(container))

    def exit_container(self, pod: Pod, container: str) -> None:
        """End the container; the pod keeps running."""
        with self._host.changed:
            self.pod(pod).running.discard(container)

    def run(self, pod: Pod) -> Outcome:
        """Admit the pod and start its containers. Regular init containers end before the others.

        If its claims cannot be prepared, the outcome is true and has no ``options``, ``event`` says
        why, and ``sync()`` tries again.
        """
        outcome = self.launch(pod) if pod.has_claims else self.admit(pod)
        if not outcome:
            return outcome
        options = {}
        for container in pod.all_containers:
            try:
                options[container.name] = self.start_container(pod, container.name)
            except PodNotReadyError as error:
                return replace(outcome, event=str(error))
            if pod.runs_once(container):
                self.exit_container(pod, container.name)
        return replace(outcome, options=options)

    def terminate(self, pod: Pod, phase: str = "Succeeded") -> None:
        """End the pod. The kubelet silently frees its devices some time later.

        A pod with claims keeps its phase until they are unprepared: if that fails, ``sync()`` tries
        again. While the kubelet is stopped, its containers run on.
        """
        state = self.pod(pod)
        with self._host.changed:
            process = self._process if pod.has_claims else None
            # The thread that does what is due makes no second attempt beside the one made here.
            state.ending, state.retry_at = phase, 0.0 if process is None else math.inf
            if not pod.has_claims:
                state.phase, state.ending = phase, ""
                state.running.clear()
            self._host.notify()
        if process is not None:
            try:
                process.workers.end(state)
            finally:
                if math.isinf(state.retry_at):  # the kubelet stopped meanwhile
                    state.retry_at = 0.0

    def delete(self, pod: Pod) -> None:
        """End the pod and remove it from the API server, whether the kubelet runs or not.

        Claims that cannot be unprepared now are unprepared within a minute, by ``sync()``.
        """
        with self._host.changed:
            state = self._host.pods.get(pod.uid)
            known = state is not None and pod.has_claims and not state.terminal
        if known and self.running:
            self.terminate(pod)
        with self._host.changed:
            self._host.pods.pop(pod.uid, None)
            self._host.notify()

    # Periodic work

    def tick(self) -> None:
        """Update the node status. A real kubelet does so every 10 s, this one only here."""
        self._live().manager.update_node()

    def sync(self) -> None:
        """Do what is due by the clock. This happens by itself unless ``sync_interval`` is None.

        It prepares and unprepares claims where that failed, releases claims of pods that are gone,
        deletes the slices of drivers that are gone, and asks for the health of devices.
        """
        with self._alive() as process:
            process.sync()

    def _sync_again(self) -> None:
        with suppress(KubeletStopped, KubeletCrashed):  # it has stopped meanwhile
            self.sync()

    def watch(self, *, settle: bool = True) -> None:
        """Check plugins_registry once. This happens by itself unless ``watch_interval`` is None.

        It waits for the registrations that this starts, at most 30 s, unless ``settle`` is false.
        """
        watcher = self._live().watcher
        watcher.check()
        if settle:
            self.wait(lambda: not watcher.busy, what="plugins in plugins_registry to be registered")

    def take_pokes(self) -> list[frozenset[str]]:
        """Return and forget the UIDs of pods to sync because a device's health changed."""
        with self._host.changed:
            pokes = list(self._host.pokes)
            self._host.pokes.clear()
            return pokes

    # Calls of plugins, without any bookkeeping

    def hang_up(self, resource: str) -> None:
        """Close the connection to the resource's plugin. Its stream ends, its devices are lost.

        Raises:
            LookupError: The kubelet has no connection for ``resource``.
        """
        if self._process is None or not self._process.connections.disconnect(resource):
            raise LookupError(f"{resource} has no connection; {self._state()}")

    def allocate(
        self, resource: str, ids: Iterable[str], *, timeout: float | None = 10.0
    ) -> pb.ContainerAllocateResponse:
        """Call Allocate for these devices and return the answer.

        Raises:
            grpc.RpcError: The plugin answered with an error.
            LookupError: The resource has no plugin, or the answer has no container.
        """
        wanted = pb.ContainerAllocateRequest(devices_ids=ids)
        request = pb.AllocateRequest(container_requests=[wanted])
        response = self.call(resource, "Allocate", request, timeout)
        if not response.container_responses:
            raise LookupError(f"{resource} answered Allocate for no container")
        answer: pb.ContainerAllocateResponse = response.container_responses[0]
        return answer

    def prefer(
        self,
        resource: str,
        available: Iterable[str],
        required: Iterable[str],
        size: int,
        *,
        timeout: float | None = 10.0,
    ) -> list[str]:
        """Call GetPreferredAllocation and return the answer; errors as in ``allocate``."""
        wanted = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[wanted])
        response = self.call(resource, "GetPreferredAllocation", request, timeout)
        return [id_ for answer in response.container_responses[:1] for id_ in answer.deviceIDs]

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float | None = 30.0) -> None:
        """Call PreStartContainer for these devices; errors as in ``allocate``."""
        request = pb.PreStartContainerRequest(devices_ids=ids)
        self.call(resource, "PreStartContainer", request, timeout)

    def call(self, resource: str, method: str, request: Any, timeout: float | None) -> Any:
        """Call a method of the plugin and return its answer; errors as in ``allocate``."""
        return self._client(resource).call(method, request, timeout)
