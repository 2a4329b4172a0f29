"""The command ``simulated-device-plugin ctl``, which controls a running plugin."""

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deviceplugin_simulated.control import LIST
from deviceplugin_simulated.life import Action

_TIMEOUT: Final = 10.0
"""Seconds to wait for the reply."""
_VARIABLE: Final = "DP_CONTROL_SOCKET"


class _NoReplyError(Exception):
    """The plugin read the request, and disconnected without a reply."""


def run(argv: Sequence[str]) -> int:
    """Run the command with ``argv``. Return its exit status: 0, 1 if refused, or 2 if misused."""
    options = _parser().parse_args(argv)
    if options.control_socket is None:
        return _fail(2, f"--control-socket (or {_VARIABLE}) is needed")
    request = {
        "do": options.action,
        "devices": options.devices,
        "reason": options.reason,
        "by": options.by,
        "for": options.lasting,
    }
    try:
        reply = _ask(options.control_socket, {k: v for k, v in request.items() if v})
    except _NoReplyError as error:
        # A plugin may crash on request before it replies.
        return (
            0 if options.action == Action.CRASH else _fail(1, f"{options.control_socket}: {error}")
        )
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        return _fail(1, f"{options.control_socket}: {text}")
    if "error" in reply:
        return _fail(1, reply["error"])
    _show(reply)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulated-device-plugin ctl",
        description="Make devices of a simulated plugin, which runs with --control-socket, fail, "
        "recover, vanish and come back.",
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=[*map(str, Action), LIST], metavar="ACTION",
                        help=f"one of {', '.join(Action)}, {LIST}")  # fmt: skip
    parser.add_argument(
        "devices", nargs="*", metavar="DEVICE", help="ids, or patterns such as 'gpu-*' (all)"
    )
    parser.add_argument("--reason", help="text for operators and pods")
    parser.add_argument(
        "--by", metavar="DURATION", help="how much slower, such as 5s (default: 1s)"
    )
    parser.add_argument(
        "--for", dest="lasting", metavar="DURATION", help="end it after this time, such as 30s"
    )
    socket_path = os.environ.get(_VARIABLE)
    parser.add_argument(
        "--control-socket",
        type=Path,
        metavar="PATH",
        default=Path(socket_path) if socket_path else None,
        help=f"the plugin's socket (or {_VARIABLE})",
    )
    return parser


def _ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_TIMEOUT)
        client.connect(os.fspath(path))
        with suppress(BrokenPipeError, ConnectionResetError):  # the reply has the reason
            client.sendall(json.dumps(request).encode() + b"\n")
        line = b""
        with suppress(ConnectionResetError), client.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise _NoReplyError("the plugin did not reply")
    reply: dict[str, Any] = json.loads(line)
    return reply


def _show(reply: dict[str, Any]) -> None:
    width = max(map(len, reply["devices"]), default=0)
    lines = [f"{device_id:{width}}  {how}\n" for device_id, how in reply["devices"].items()]
    if not lines or reply["plugin"] != "running":
        lines.append(f"plugin: {reply['plugin']}\n")
    try:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
    except BrokenPipeError:  # as of head; Python must not report it at its last flush, either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(status: int, text: str) -> int:
    sys.stderr.write(f"simulated-device-plugin ctl: {text}\n")
    return status
