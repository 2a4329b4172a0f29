"""The message of an error for the status of a pod."""

from typing import Final

from deviceplugin._platform import hooks as _hooks
from deviceplugin.errors import DevicePluginError

_MAX_REASON: Final = 400
"""Bytes. The reason goes into the status of a pod, and into an Event of at most 1,024 bytes."""


def reason_of(error: DevicePluginError) -> str:
    """Return the message of ``error`` for the kubelet: one short line of UTF-8, never empty."""
    raised = error.__cause__ if isinstance(error, _hooks.HookFailedError) else error
    if _text(raised) in {"", "None"}:  # the message of an error number may be None
        return f"{type(raised).__name__} was raised without a message"
    encoded = _text(error).encode(errors="replace")
    if len(encoded) <= _MAX_REASON:
        return encoded.decode()
    return f"{encoded[: _MAX_REASON - len('...')].decode(errors='ignore')}..."


def _text(error: BaseException | None) -> str:
    """Return the start of the message of ``error`` on one line; empty if it has none to give."""
    try:
        return " ".join(_hooks.call(str, error)[: 4 * _MAX_REASON].split())
    except DevicePluginError:
        return ""
