"""gRPC services and clients, made from the descriptors in the generated messages.

Generated ``_pb2_grpc`` modules would pin one grpcio release, only for three small services.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

M = TypeVar("M", bound=Message)


def service(
    descriptor: ServiceDescriptor, implementation: object, *, encoded: frozenset[str] = frozenset()
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return a handler that serves ``descriptor`` by the methods of ``implementation``.

    Methods named in ``encoded`` return bytes. Those that it lacks are ``UNIMPLEMENTED``.
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
    """Return a channel to the Unix ``socket`` that does not share its connection.

    With a shared connection, a failed attempt of one channel would make the others wait.
    ``options`` are gRPC's channel arguments, without the prefix ``grpc.``.
    """
    own = {"use_local_subchannel_pool": 1, "enable_http_proxy": 0}
    arguments = [(f"grpc.{name}", value) for name, value in (own | options).items()]
    return grpc.insecure_channel(f"unix:{socket}", arguments)


def calls(
    channel: grpc.Channel, descriptor: ServiceDescriptor, *, encoded: bool = False
) -> Mapping[str, Any]:
    """Return the callables of a client of ``descriptor``, by method name.

    With ``encoded`` they return bytes. The caller then decodes them, because gRPC would log a
    traceback for each answer that it cannot decode.
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


def ask(
    socket: Path, method: str, request: Message, kind: type[M], *, timeout: float, most: int
) -> M:
    """Return the answer of ``method``, such as ``/v1.Service/Method``, on a Unix ``socket``.

    Raises:
        OSError: There is none of ``most`` bytes at most within ``timeout`` seconds. It says why.
    """
    with connect(socket, max_receive_message_length=most) as channel:
        call = channel.unary_unary(method, request_serializer=_encode, response_deserializer=bytes)
        try:
            return kind.FromString(call(request, timeout=timeout))
        except grpc.RpcError as error:
            raise OSError(status_text(error)) from error
        except DecodeError as error:
            raise OSError("answers what is not a message") from error


def status_text(error: grpc.RpcError) -> str:
    """Return ``error`` as one line: its code and details."""
    call = cast("grpc.Call", error)
    return f"{call.code().name}: {call.details()}"
