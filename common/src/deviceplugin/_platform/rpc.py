"""gRPC services and clients made from the descriptors in the generated messages.

Generated ``_pb2_grpc`` modules would pin one grpcio release for what are three small services.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def service(
    descriptor: ServiceDescriptor, implementation: object, *, encoded: frozenset[str] = frozenset()
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serve ``descriptor`` by the methods of the same names on ``implementation``.

    Methods that ``implementation`` lacks are answered with ``UNIMPLEMENTED``.
    Those named in ``encoded`` answer with bytes that are already encoded.
    """
    handlers = {
        method.name: _handler(method, behaviour, encoded=method.name in encoded)
        for method in descriptor.methods
        if (behaviour := getattr(implementation, method.name, None)) is not None
    }
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


def _handler(
    method: MethodDescriptor, behaviour: Callable[..., Any], *, encoded: bool
) -> "grpc.RpcMethodHandler[Any, Any]":
    make = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(
        behaviour,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=None if encoded else _encode,
    )


def _encode(message: Message) -> bytes:
    return message.SerializeToString()


def connect(socket: Path | str, **options: int | str) -> grpc.Channel:
    """Return a channel to the Unix ``socket`` that shares its connection with no other.

    A shared one would have to wait where an earlier attempt of another failed. ``options`` are
    gRPC's arguments of a channel, without the ``grpc.`` in front.
    """
    own = {"use_local_subchannel_pool": 1, "enable_http_proxy": 0}
    arguments = [(f"grpc.{name}", value) for name, value in (own | options).items()]
    return grpc.insecure_channel(f"unix:{socket}", arguments)


def calls(
    channel: grpc.Channel, descriptor: ServiceDescriptor, *, encoded: bool = False
) -> Mapping[str, Any]:
    """Return the callables of a client of ``descriptor``, by method name.

    With ``encoded`` they return bytes: gRPC logs a traceback for each answer that it cannot decode.
    """
    return {
        method.name: (channel.unary_stream if method.server_streaming else channel.unary_unary)(
            f"/{descriptor.full_name}/{method.name}",
            request_serializer=_encode,
            response_deserializer=(
                None if encoded else GetMessageClass(method.output_type).FromString
            ),
        )
        for method in descriptor.methods
    }


def status_text(error: grpc.RpcError) -> str:
    """Return ``error`` as one line: its code and what the other side said."""
    call = cast("grpc.Call", error)
    return f"{call.code().name}: {call.details()}"
