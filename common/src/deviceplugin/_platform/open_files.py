"""How many files this process may still open. gRPC aborts the process if there are none left."""

import os
import resource
from typing import Final

NEEDED: Final = 8
"""The most files that gRPC opens for a server, a call to the kubelet and the kubelet's stream."""
RESERVE: Final = 2 * NEEDED
"""Files that everything off the device path leaves free for it."""


def spare() -> int:
    """Return how many more files this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return RESERVE
    try:
        used = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - the one to look with is closed
    except OSError:  # not even one for this check
        return 0
    return max(0, limit - used)


def shortage() -> str:
    """Return a message if too few files are left for gRPC; otherwise an empty string."""
    if spare() >= NEEDED:
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"fewer than {NEEDED} of {limit} open files are left: raise the limit"
