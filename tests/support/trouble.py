"""What has happened on a node, and commands of a runbook that are run without kubectl."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cluster.container import BIN
from deviceplugin._platform import log_lines as log

Scrapes = Iterator[str]
"""What Prometheus gets while the trouble begins, each for a minute, and the last one for long."""


class Trouble(NamedTuple):
    """What has happened, and what the commands of the runbook print of it."""

    happens: Callable[..., Scrapes]
    sign: str


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Log as a plugin's pod does."""
    with path.open("a", encoding="utf-8", buffering=1) as stream:
        log.configure("info", "json", stream)
        yield


def in_pod(command: str, logged: Path, socket: Path, port: int = 0) -> str:
    """Return what a command prints: kubectl would have run it in the plugin's pod."""
    here = re.sub(r"kubectl --namespace \S+ exec \S+ -- ", "", command.rpartition("\n")[2])
    here = re.sub(r"kubectl --namespace \S+ logs \S+", f"cat {logged}", here)
    done = subprocess.run(
        ["sh", "-c", here.replace(":9494", f":{port}")],
        env={"PATH": f"{BIN}:/usr/bin:/bin", "DP_POD_RESOURCES_SOCKET": str(socket)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{here}: {done.stderr}"
    return done.stdout
