"""Why a container does not start."""

from __future__ import annotations


class HookError(Exception):
    """The regions cannot be as the container requests. The message says why."""


def shown(value: object, longest: int = 300) -> str:
    """Return ``value`` as one line of at most ``longest`` characters, without control characters.

    Use it for untrusted values, because messages end in the events of a pod.
    """
    beginning = str(value)[: longest + 1]
    text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in beginning)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
