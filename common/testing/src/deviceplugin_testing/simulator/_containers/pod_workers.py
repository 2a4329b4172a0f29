"""Pod workers, as far as claims need them: making sandboxes and tearing pods down, with retries."""

from collections.abc import Callable
from threading import RLock
from typing import Final
from weakref import WeakValueDictionary

from deviceplugin_testing.simulator._containers.runtime import Runtime, Starter
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._dra.manager import DraManager
from deviceplugin_testing.simulator._dra.preparing import PrepareError
from deviceplugin_testing.simulator._errors import ContainerStartError, PodNotReadyError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod, PodState, RunOptions

BACKOFF: Final = 10.0
"""Seconds until a teardown that failed is tried again, up to half of it more."""
JITTER: Final = 0.5


class PodWorkers:
    """Makes sandboxes, for which claims must be prepared, and ends pods."""

    def __init__(
        self,
        host: Host,
        manager: DeviceManager,
        dra: DraManager,
        starter: Starter,
        runtime: Runtime,
    ) -> None:
        self._host = host
        self._manager = manager
        self._dra = dra
        self._starter = starter
        self._runtime = runtime
        self._workers: WeakValueDictionary[str, RLock] = WeakValueDictionary()

    def _worker(self, state: PodState) -> RLock:
        """Return what a thread holds while it works on the pod, as a kubelet has a worker for each.

        Only the end of a pod does not wait for it: a driver may take long to answer.
        """
        with self._host.changed:
            return self._workers.setdefault(state.pod.uid, RLock())

    def run_options(self, pod: Pod, container: Container) -> RunOptions | None:
        """Return what the kubelet passes to the runtime for a container of a pod with a sandbox."""
        names = []
        if self._host.config.has_dra:
            names = self._dra.containers.cdi_names(pod, container)
        options = self._starter.run_options(pod, container)
        return options.with_claims(names) if options else RunOptions.of_claims(names)

    def start(self, state: PodState, container: Container) -> RunOptions | None:
        """Start a container; raise ``PodNotReadyError`` or ``ContainerStartError``."""
        with self._worker(state):
            self.make_sandbox(state)
            options = self._runtime.create(self.run_options(state.pod, container))
            self._started(state, container, options)
        return options

    def _started(self, state: PodState, container: Container, options: RunOptions | None) -> None:
        with self._host.changed:
            self._manager.check_alive()
            state.phase = "Running"
            state.running.add(container.name)
            state.waiting = [name for name in state.waiting if name != container.name]
            state.started[container.name] = options
            self._host.observer.started(state.pod, container.name, options)
            self._host.notify()

    def make_sandbox(self, state: PodState) -> None:
        """Prepare the pod's claims and make its sandbox; raise ``PodNotReadyError``."""
        if state.sandbox:
            return
        if self._host.config.has_dra and not self._attempt(
            state, self._dra.preparer.prepare, self._host.config.sync_frequency
        ):
            raise PodNotReadyError(state.event)
        with self._host.changed:
            self._manager.check_alive()
            state.sandbox = True

    def _attempt(self, state: PodState, work: Callable[[Pod], None], delay: float) -> bool:
        """Try ``work``. If it fails, record why, and that it is due again after ``delay``."""
        try:
            work(state.pod)
        except PrepareError as error:
            self._manager.check_alive()
            with self._host.changed:
                state.event = f"Failed to {error}"
                jitter = 1 + self._host.rng.random() * JITTER
                state.retry_at = self._host.clock() + delay * jitter
                self._host.notify()
            return False
        with self._host.changed:
            state.event, state.retry_at = "", 0.0
        return True

    def end(self, state: PodState) -> bool:
        """Stop the containers, unprepare the claims and set the phase; return whether it is set.

        If a claim cannot be unprepared, the pod keeps its phase, and another attempt follows.
        """
        with self._host.changed:
            state.running.clear()
            state.waiting.clear()
            self._host.notify()
        if self._host.config.has_dra and not self._attempt(
            state, self._dra.preparer.unprepare, BACKOFF
        ):
            return False
        with self._host.changed:
            # Another thread may have ended the pod meanwhile.
            state.phase, state.ending, state.sandbox = state.ending or state.phase, "", False
            self._host.notify()
        return True

    def run(self) -> None:
        """Try again what failed and is due: pods that end, and pods that have no sandbox."""
        now = self._host.clock()
        with self._host.changed:
            states = [
                state
                for uid, state in self._host.pods.items()
                if state.retry_at <= now and (state.ending or self._manager.active(uid))
            ]
        for state in states:
            worker = self._worker(state)
            if not worker.acquire(blocking=False):
                continue  # another thread works on it
            try:
                if state.ending:
                    self.end(state)
                elif state.waiting:
                    self._start_waiting(state)
            finally:
                worker.release()

    def _start_waiting(self, state: PodState) -> None:
        pod = state.pod
        for name in list(state.waiting):
            container = pod.container(name)
            try:
                self.start(state, container)
            except PodNotReadyError:
                return
            except ContainerStartError as error:
                with self._host.changed:
                    state.event = f"Error: {error}"
                    state.retry_at = self._host.clock() + BACKOFF
                return
            if pod.runs_once(container):
                with self._host.changed:
                    state.running.discard(name)
