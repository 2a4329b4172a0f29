"""The wire as a kubelet in Go has it: paths of sockets, errors, connections and servers."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NoReturn, cast
from urllib.parse import quote, unquote

import grpc

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)

_GO_ESCAPES = dict(zip('\a\b\f\n\r\t\v"\\', 'abfnrtv"\\', strict=True))
"""Characters, and what stands for them after a backslash."""


def socket_path(directory: Path, endpoint: str) -> str:
    """Return the path that the kubelet dials for ``endpoint``: joined and cleaned, never checked.

    ``..`` leads out of ``directory``; an absolute endpoint lands inside it.
    """
    return os.path.normpath(f"{directory}/{endpoint}")


def dialled_path(path: str) -> str:
    """Return the path for gRPC to dial: the kubelet reads ``path`` as part of a URL.

    So ``?`` and ``#`` cut the path short, and ``%41`` means ``A``.

    Raises:
        ValueError: The path has an invalid escape.
    """
    if bad := _BAD_ESCAPE.search(path):
        url = go_quote(f"passthrough:///{path}")
        raise ValueError(f"parse {url}: invalid URL escape {go_quote(bad.group())}")
    return quote(unquote(re.split("[?#]", path, maxsplit=1)[0]))


def go_quote(text: str) -> str:
    """Return ``text`` in quotes, as in the kubelet's messages."""
    return '"' + "".join(map(_printable, text)) + '"'


def _printable(char: str) -> str:
    if char in _GO_ESCAPES:
        return f"\\{_GO_ESCAPES[char]}"
    if char.isprintable():
        return char
    if char < "\x80":
        return f"\\x{ord(char):02x}"
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


_CODE_NAMES: Final = {grpc.StatusCode.OK: "OK", grpc.StatusCode.CANCELLED: "Canceled"}

_GO_WORDS: Final = (
    (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "context deadline exceeded"),
    (grpc.StatusCode.CANCELLED, "Channel closed!", "grpc: the client connection is closing"),
    (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        r"CLIENT: Received message larger than max \((\d+) vs\. (\d+)\)",
        "grpc: received message larger than max ({0} vs. {1})",
    ),
    (
        grpc.StatusCode.INTERNAL,
        "Exception deserializing response!",
        (
            "grpc: failed to unmarshal the received message: "
            "proto: cannot parse invalid wire-format data"
        ),
    ),
    (grpc.StatusCode.UNAVAILABLE, "Socket closed", "error reading from server: EOF"),
    (
        grpc.StatusCode.UNAVAILABLE,
        r"recvmsg:(Connection reset by peer) \(\d+\)",
        "error reading from server: read unix @->{path}: read: {0}",
    ),
    (
        grpc.StatusCode.UNAVAILABLE,
        r"failed to connect to all addresses; .* connect failed: addr: unix:PATH error: (.*)",
        'connection error: desc = "transport: Error while dialing: dial unix {path}: connect: {0}"',
    ),
    (
        grpc.StatusCode.UNAVAILABLE,
        r"failed to connect to all addresses; .* unix:PATH.*",
        (
            'connection error: desc = "error reading server preface: '
            'read unix @->{path}: read: connection reset by peer"'
        ),
    ),
)
"""A code, grpcio's message with it for a socket PATH, and grpc-go's message for the same."""

_WRAPPED: Final = re.compile(r"Stream removed \((.*)\)", re.DOTALL)
"""What some versions of grpcio put around their own messages."""


class ClientClosed(grpc.RpcError):
    """The call was not made because the kubelet had closed the connection."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "grpc: the client connection is closing"


def go_error(error: grpc.RpcError, path: str) -> str:
    """Return ``error`` of a call over the socket ``path`` as a Go client prints it."""
    call = cast("grpc.Call", error)
    code, details = call.code(), call.details() or ""
    name = _CODE_NAMES.get(code) or "".join(word.title() for word in code.name.split("_"))
    return f"rpc error: code = {name} desc = {_go_words(code, details, path)}"


def _go_words(code: grpc.StatusCode, details: str, path: str) -> str:
    """Return grpc-go's message for grpcio's; a plugin's own message stays unchanged."""
    wrapped = _WRAPPED.fullmatch(details)
    own = wrapped[1] if wrapped else details
    for status, pattern, words in _GO_WORDS:
        found = re.fullmatch(pattern.replace("PATH", re.escape(path)), own)
        if code is status and found:
            return words.format(*(group.lower() for group in found.groups()), path=path)
    return details


LARGEST_MESSAGE: Final = 4 * 1024 * 1024
"""Most bytes of a message that a Go client accepts by default."""

_CLOSE_CHECK: Final = 0.05
"""Seconds after which a dial notices that its channel was closed."""


def wait_until_ready(channel: grpc.Channel, timeout: float) -> bool:
    """Wait up to ``timeout`` seconds for the server's HTTP/2 preface; return whether it came.

    It also returns False soon after the channel was closed.
    """
    # The public way leaves a watch for 0.2 s, and closing the channel would wait for it.
    inner = cast("Any", channel)._channel  # noqa: SLF001
    deadline = time.monotonic() + timeout
    ready = grpc.ChannelConnectivity.READY.value[0]
    try:
        while (state := inner.check_connectivity_state(True)) != ready:  # noqa: FBT003
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            inner.watch_connectivity_state(state, time.time() + min(remaining, _CLOSE_CHECK))
    except ValueError:  # closed meanwhile
        return False
    return True


def connectivity(channel: grpc.Channel) -> Iterator[bool]:
    """Yield whether the channel is connected, at each change, until it is closed.

    A lost connection is dialled again, with growing gaps.
    """
    inner = cast("Any", channel)._channel  # noqa: SLF001
    ready = grpc.ChannelConnectivity.READY.value[0]
    connected = False
    try:
        while True:
            state = inner.check_connectivity_state(True)  # noqa: FBT003
            if connected is not (state == ready):
                connected = state == ready
                yield connected
            inner.watch_connectivity_state(state, time.time() + _CLOSE_CHECK)
    except ValueError:  # closed
        return


class UnixServer:
    """A gRPC server on a Unix socket that leaves its socket file behind when it stops.

    grpcio deletes the path that it listens on. A kubelet does not, and plugins must cope with the
    stale file. So the server listens on a temporary name, and only a second link to the socket
    gets the real name.
    """

    def __init__(
        self,
        path: Path,
        handlers: "Iterable[grpc.GenericRpcHandler[Any, Any]]",
        *,
        scratch: Path,
        publish: Callable[[Path, Path], None],
        workers: int,
    ) -> None:
        """Make a server of ``handlers`` on ``path`` with up to ``workers`` threads.

        ``scratch`` is a short unused name on the same file system; ``publish`` moves it.
        """
        self._path = path
        self._scratch = scratch
        self._publish = publish
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix=f"serve-{path.name}")
        known = list(handlers)
        self._server = grpc.server(self._executor, handlers=[*known, _Unimplemented(known)])

    def start(self) -> None:
        """Listen and serve; raise ``OSError`` if the path exists and is not a socket."""
        self._scratch.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self._scratch}")
        self._server.start()
        self._publish(self._scratch, self._path)

    def cancel(self) -> None:
        """Stop serving: running calls end at once for their clients."""
        self._server.stop(None)

    def stop(self) -> None:
        """Stop serving and wait until no handler runs any more."""
        self._server.stop(None).wait()
        self._executor.shutdown()


class _Unimplemented(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers calls of anything but ``known`` with the message of a Go server."""

    def __init__(self, known: "Iterable[grpc.GenericRpcHandler[Any, Any]]") -> None:
        self._known = {
            handler.service_name()
            for handler in known
            if isinstance(handler, grpc.ServiceRpcHandler)
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        service, _, method = handler_call_details.method.strip("/").partition("/")
        text = f"unknown service {service}"
        if service in self._known:
            text = f"unknown method {method} for service {service}"

        def refuse(_request: bytes, context: grpc.ServicerContext) -> NoReturn:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, text)

        return grpc.unary_unary_rpc_method_handler(refuse)
