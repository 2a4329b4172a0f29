"""The plugin directory, as a starting kubelet finds and leaves it."""

import random
import stat
from pathlib import Path

CHECKPOINT = "kubelet_internal_checkpoint"


def sweep(directory: Path, rng: random.Random) -> None:
    """Delete every socket in ``directory``, in any order.

    Links to sockets go too. Files, FIFOs, dangling links, directories and what is in them stay.
    ``OSError`` if a socket cannot be deleted: the kubelet does not start then.
    """
    entries = sorted(path for path in directory.iterdir() if path.name != CHECKPOINT)
    rng.shuffle(entries)
    for path in entries:
        if _is_socket(path):
            path.unlink()


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
