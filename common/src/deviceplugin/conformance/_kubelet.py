"""A simulated kubelet that keeps a journal of what plugins tell it."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from deviceplugin import _rpc
from deviceplugin.conformance import _wire
from deviceplugin.simulator import KubeletConfig, SimulatedKubelet
from deviceplugin.simulator._host import Host
from deviceplugin.simulator._naming import socket_path
from deviceplugin.simulator._process import _REGISTER_WORKERS, _REGISTRATION, Process, _link
from deviceplugin.simulator._registration import Registration
from deviceplugin.simulator._wire import UnixServer
from deviceplugin.v1beta1 import deviceplugin_pb2 as pb

_NUMA_NODES: Final = 8


@dataclass(slots=True)
class Registered:
    """One call of Register."""

    at: float
    resource: str
    version: str
    endpoint: str
    served: bool
    """Whether the endpoint answered at the moment of the call."""
    answered_at: float = 0.0
    """0 until it was answered."""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """One message of a ListAndWatch stream of the kubelet's."""

    at: float
    resource: str
    stream: threading.Thread
    """Stands for the stream."""
    devices: tuple[pb.Device, ...]

    @property
    def ids(self) -> list[str]:
        """The ids in their order, repeated where the plugin repeated them."""
        return [device.ID for device in self.devices]


@dataclass(slots=True)
class Journal:
    """What plugins have told, over all starts of a kubelet; guarded by the kubelet."""

    registered: list[Registered] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)


class ObservedKubelet(SimulatedKubelet):
    """A simulated kubelet that remembers each registration and each list as they came."""

    def __init__(self, root: Path, *, seed: int, hello: float, dial_timeout: float) -> None:
        config = KubeletConfig(
            topology_policy="best-effort", numa_nodes=tuple(range(_NUMA_NODES)), watch_interval=None
        )
        super().__init__(root, seed=seed, dial_timeout=dial_timeout, config=config)
        self.journal = Journal()
        self._hello = hello

    def start(self, *, readmit: bool = True) -> None:
        """Start as the base class does, with a journal."""
        process = _ObservedProcess(
            self._host, dial_timeout=self._dial_timeout, journal=self.journal, hello=self._hello
        )
        process.start()
        with self._host.changed:
            self._process = process
            self._host.notify()
        if readmit:
            self.readmit()

    def call(self, resource: str, method: str, request: Any, timeout: float) -> Any:
        """Call the plugin over the kubelet's connection and return its answer as it is.

        ``grpc.RpcError`` as the plugin raised it, ``LookupError`` without plugin.
        """
        return self._call(resource, method, request, timeout)

    def registrations(self, resource: str | None = None) -> list[Registered]:
        """Return all calls of Register so far, or those for ``resource``."""
        with self._host.changed:
            return [r for r in self.journal.registered if resource in {None, r.resource}]

    def lists(self, resource: str | None = None) -> list[Listed]:
        """Return all lists so far, or those of ``resource``."""
        with self._host.changed:
            return [each for each in self.journal.listed if resource in {None, each.resource}]


class _ObservedProcess(Process):
    def __init__(self, host: Host, *, dial_timeout: float, journal: Journal, hello: float) -> None:
        super().__init__(host, dial_timeout=dial_timeout)
        listed = self.manager.listed

        def note(resource: str, devices: Iterable[pb.Device]) -> None:
            known = tuple(devices)
            stream = threading.current_thread()
            with host.changed:
                journal.listed.append(Listed(time.monotonic(), resource, stream, known))
                listed(resource, known)

        self.manager.listed = note  # type: ignore[method-assign]
        registration = _ObservedRegistration(host, self.connections)
        registration.journal, registration.hello = journal, hello
        self._registration = UnixServer(
            host.kubelet_socket,
            [_rpc.service(_REGISTRATION, registration)],
            scratch=host.root / ".dp",
            publish=_link,
            workers=_REGISTER_WORKERS,
        )


class _ObservedRegistration(Registration):
    journal: Journal
    hello: float

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:  # noqa: N802
        path = socket_path(self._host.plugin_dir, request.endpoint)
        entry = Registered(
            time.monotonic(),
            request.resource_name,
            request.version,
            request.endpoint,
            served=_wire.answers(path, self.hello),
        )
        with self._host.changed:
            self.journal.registered.append(entry)
            self._host.notify()
        try:
            return super().Register(request, context)
        finally:
            with self._host.changed:
                entry.refusal = _details(context)
                entry.answered_at = time.monotonic()
                self._host.notify()


def _details(context: Any) -> str:
    """Return what the call was refused with. The context tells in bytes; its stubs do not know."""
    return (context.details() or b"").decode()
