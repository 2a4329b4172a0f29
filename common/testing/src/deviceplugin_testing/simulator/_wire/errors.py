"""Errors of calls in the words of a Go program."""

import re
from typing import Final, cast

import grpc

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
        """Return the code of a Go client."""
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        """Return the message of a Go client."""
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
