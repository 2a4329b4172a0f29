"""Checks the address of the liveness probe before anything starts."""

import socket
from typing import Final
from urllib.parse import urlsplit

import deviceplugin as dp

_EXAMPLE: Final = "http://0.0.0.0:8080/healthz"


def check(address: str) -> None:
    """Check that the probe can be served at ``address``.

    Raises:
        ConfigError: It is not an HTTP address with port and path, or it cannot be listened on.
    """
    given = f"--liveness {address!r}"
    try:
        parts = urlsplit(address)
        place = parts.hostname, parts.port
    except ValueError as error:  # of the port or of an IPv6 address
        raise dp.ConfigError(f"{given}: {error}: an example is {_EXAMPLE}") from error
    host, port = place
    if parts.scheme != "http" or not host or not port or not parts.path.startswith("/"):
        raise dp.ConfigError(f"{given} is not an address with port and path, such as {_EXAMPLE}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            tried.bind((host, port))
    except OSError as error:
        raise dp.ConfigError(f"{given}: cannot listen there: {error.strerror}") from error
