"""Why a container does not start."""


class HookError(Exception):
    """The regions cannot be as the container asks; the text says why."""
