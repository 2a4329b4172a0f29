"""A simulated kubelet that keeps a journal, and streams by hand beside its own."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import grpc
from typing_extensions import override

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import KubeletConfig, Observer, SimulatedKubelet

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE: Final = b"\x00\x04"


def answers(path: str | os.PathLike[str], timeout: float) -> bool:
    """Return whether a server on ``path`` accepts and answers the HTTP/2 preface in time."""
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError, ValueError):
        client.settimeout(timeout)
        client.connect(os.fspath(path))
        client.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        return client.recv(1) != b""
    return False


@contextmanager
def deaf_stream(path: Path, timeout: float) -> Iterator[None]:
    """Open a ListAndWatch stream whose reader accepts no byte, because its window is 0."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(os.fspath(path))
        no_window = _INITIAL_WINDOW_SIZE + bytes(4)
        client.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, no_window)
            + _frame(_HEADERS, _END_HEADERS, 1, _headers("ListAndWatch"))
            + _frame(_DATA, _END_STREAM, 1, bytes(5))  # an empty message
        )
        client.recv(1)
        yield


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def _headers(method: str) -> bytes:
    """Return the headers of a gRPC request in HPACK, as literals without indexing."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{_SERVICE.full_name}/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


class Stream:
    """A ListAndWatch stream that accepts lists of any size."""

    def __init__(self, path: Path) -> None:
        self._channel = rpc.connect(
            path, default_authority="localhost", max_receive_message_length=-1
        )
        self._first = threading.Event()
        self._opened_at = 0.0
        self.waited: float | None = None
        """Seconds to the first list; None if there was none."""
        self.size = 0
        self.error = ""
        """Why the stream ended, unless we closed it."""
        self._thread = threading.Thread(target=self._read, name="conformance-stream", daemon=True)

    def __enter__(self) -> Self:
        self._opened_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._thread.join()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the first list, and return whether it came."""
        self._first.wait(timeout)
        return self.waited is not None

    def _read(self) -> None:
        call: Any = rpc.calls(self._channel, _SERVICE)["ListAndWatch"]
        try:
            for message in call(pb.Empty()):
                if self.waited is None:
                    self.waited = time.monotonic() - self._opened_at
                    self.size = message.ByteSize()
                    self._first.set()
        except grpc.RpcError as error:
            self.error = rpc.status_text(error)
        except ValueError:  # closed before the call
            pass
        finally:
            self._first.set()


_NUMA_NODES: Final = 8


@dataclass(slots=True)
class Registered:
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
            served=answers(path, self._hello),
        )
        self.registered.append(entry)

        def answered(refusal: str) -> None:
            entry.refusal, entry.answered_at = refusal, time.monotonic()

        return answered

    @override
    def listed(self, resource: str, devices: Sequence[pb.Device]) -> None:
        stream = threading.current_thread()
        self.lists.append(Listed(time.monotonic(), resource, stream, tuple(devices)))
