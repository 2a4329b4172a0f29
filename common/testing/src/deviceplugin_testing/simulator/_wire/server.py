"""A gRPC server on a Unix socket, as a Go program leaves it behind."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc


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
