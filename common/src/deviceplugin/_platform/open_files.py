"""How many files this process may still open: gRPC aborts the process where there are none left."""

import os
import resource
from typing import Final

NEEDED: Final = 8
"""What gRPC opens for a server, a call to the kubelet and the kubelet's stream, at the most."""
RESERVE: Final = 2 * NEEDED
"""What is left for the device path by all that is not on it."""


def spare() -> int:
    """Return how many more files this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return RESERVE
    try:
        used = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - the one to look with is closed
    except OSError:  # not even one to look with
        return 0
    return max(0, limit - used)


def shortage() -> str:
    """Return an empty text, or that there are too few for gRPC and what to do about it."""
    if spare() >= NEEDED:
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"fewer than {NEEDED} of {limit} open files are left: raise the limit"
