"""How many files this process may still open. gRPC aborts the process if there are none left."""

import os
import resource
from contextlib import suppress
from typing import Final

NEEDED: Final = 8
"""The most files that gRPC opens for a server, a call to the kubelet and the kubelet's stream."""
RESERVE: Final = 2 * NEEDED
"""Files that everything off the device path leaves free for it."""
_OPEN: Final = "/proc/self/fd"


def raise_limit() -> None:
    """Raise the soft limit to the hard one, if that is allowed: a pod cannot set either."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def spare() -> int:
    """Return how many more files this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return RESERVE
    try:
        # From Linux 6.2 on the size is their number, which saves a list of hundreds for each call.
        used = os.stat(_OPEN).st_size or len(os.listdir(_OPEN)) - 1  # noqa: PTH116, PTH208
    except OSError:  # not even one for the list
        return 0
    return max(0, limit - used)


def shortage() -> str:
    """Return a message if too few files are left for gRPC; otherwise an empty string."""
    if spare() >= NEEDED:
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"fewer than {NEEDED} of {limit} open files are left: raise the limit"
