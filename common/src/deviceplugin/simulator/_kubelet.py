"""The simulated kubelet, for tests and tools."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin.simulator._errors import KubeletCrashed
from deviceplugin.simulator._pods import Outcome, Pod, RunOptions
from deviceplugin.simulator._process import Process
from deviceplugin.simulator._view import KubeletView


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
        process = Process(self._host, dial_timeout=self._dial_timeout)
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
        """Return what the container gets, after PreStartContainer if a plugin requires it.

        None if it gets nothing.

        Raises:
            ContainerStartError: A plugin prevents the start.
        """
        with self._alive() as process:
            return process.starter.run_options(pod, pod.container(container))

    def start_container(self, pod: Pod, container: str) -> RunOptions | None:
        """Start the container, or restart it, and return what it got; see ``run_options``."""
        options = self.run_options(pod, container)
        with self._host.changed:
            state = self.pod(pod)
            state.phase = "Running"
            state.running.add(container)
        return options

    def exit_container(self, pod: Pod, container: str) -> None:
        """End the container; the pod keeps running."""
        with self._host.changed:
            self.pod(pod).running.discard(container)

    def run(self, pod: Pod) -> Outcome:
        """Admit the pod and start its containers. Regular init containers end before the others."""
        outcome = self.admit(pod)
        if not outcome:
            return outcome
        options = {}
        for container in pod.all_containers:
            options[container.name] = self.start_container(pod, container.name)
            if pod.runs_once(container):
                self.exit_container(pod, container.name)
        return replace(outcome, options=options)

    def terminate(self, pod: Pod, phase: str = "Succeeded") -> None:
        """End the pod. The kubelet silently frees its devices some time later."""
        with self._host.changed:
            state = self.pod(pod)
            state.phase = phase
            state.running.clear()
            self._host.notify()

    def delete(self, pod: Pod) -> None:
        """End the pod and remove it from the API server, whether the kubelet runs or not."""
        with self._host.changed:
            self._host.pods.pop(pod.uid, None)
            self._host.notify()

    # Periodic work

    def tick(self) -> None:
        """Update the node status. A real kubelet does so every 10 s, this one only here."""
        self._live().manager.update_node()

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

    # Plugins

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
        """Call Allocate for these devices and return the answer, without any bookkeeping.

        Raises:
            grpc.RpcError: The plugin answered with an error.
            LookupError: The resource has no plugin, or the answer has no container.
        """
        requests = [pb.ContainerAllocateRequest(devices_ids=ids)]
        response = self.call(
            resource, "Allocate", pb.AllocateRequest(container_requests=requests), timeout
        )
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
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        response = self.call(
            resource,
            "GetPreferredAllocation",
            pb.PreferredAllocationRequest(container_requests=[request]),
            timeout,
        )
        return [id_ for answer in response.container_responses[:1] for id_ in answer.deviceIDs]

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float | None = 30.0) -> None:
        """Call PreStartContainer for these devices; errors as in ``allocate``."""
        self.call(
            resource, "PreStartContainer", pb.PreStartContainerRequest(devices_ids=ids), timeout
        )

    def call(self, resource: str, method: str, request: Any, timeout: float | None) -> Any:
        """Call a method of the plugin and return its answer unchanged; errors as in ``allocate``.

        There are no checks and no bookkeeping.
        """
        with self._host.changed:
            endpoint = self._manager.endpoints.get(resource)
            if endpoint is None or endpoint.client is None:
                raise LookupError(f"{resource} has no plugin; {self._state()}")
        return endpoint.client.call(method, request, timeout)
