"""A simulated kubelet that keeps a journal of registrations and lists."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import override

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance import _wire
from deviceplugin_testing.simulator import KubeletConfig, Observer, SimulatedKubelet

_NUMA_NODES: Final = 8


@dataclass(slots=True)
class Registered:
    """One call of Register."""

    at: float
    resource: str
    version: str
    endpoint: str
    served: bool
    """Whether the endpoint answered at the time of the call."""
    answered_at: float = 0.0
    """0 until the call was answered."""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """One message of a ListAndWatch stream of the kubelet."""

    at: float
    resource: str
    stream: threading.Thread
    """The thread that reads the stream, which identifies it."""
    devices: tuple[pb.Device, ...]

    @property
    def ids(self) -> list[str]:
        """The ids in their order, including duplicates."""
        return [device.ID for device in self.devices]


class ObservedKubelet(SimulatedKubelet):
    """A simulated kubelet that records each registration and each list, over all its starts."""

    def __init__(
        self, root: Path, *, version: str, seed: int, hello: float, dial_timeout: float
    ) -> None:
        config = KubeletConfig(
            version=version,
            topology_policy="best-effort",
            numa_nodes=tuple(range(_NUMA_NODES)),
            watch_interval=None,
        )
        self._journal = _Journal(hello)
        super().__init__(
            root, seed=seed, dial_timeout=dial_timeout, config=config, observer=self._journal
        )

    def registrations(self, resource: str | None = None) -> list[Registered]:
        """Return all calls of Register so far, or those for ``resource``."""
        known = tuple(self._journal.registered)
        return [each for each in known if resource in {None, each.resource}]

    def lists(self, resource: str | None = None) -> list[Listed]:
        """Return all lists so far, or those of ``resource``."""
        known = tuple(self._journal.lists)
        return [each for each in known if resource in {None, each.resource}]


class _Journal(Observer):
    def __init__(self, hello: float) -> None:
        self._hello = hello
        self.registered: list[Registered] = []
        self.lists: list[Listed] = []

    @override
    def registering(self, request: pb.RegisterRequest, path: str) -> Callable[[str], None]:
        entry = Registered(
            time.monotonic(),
            request.resource_name,
            request.version,
            request.endpoint,
            served=_wire.answers(path, self._hello),
        )
        self.registered.append(entry)

        def answered(refusal: str) -> None:
            entry.refusal, entry.answered_at = refusal, time.monotonic()

        return answered

    @override
    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        stream = threading.current_thread()
        self.lists.append(Listed(time.monotonic(), resource, stream, tuple(devices)))
