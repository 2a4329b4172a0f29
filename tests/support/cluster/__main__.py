"""Run the stand-in for a cluster until Ctrl-C, and print what a shell needs to ask it.

``PYTHONPATH=tests/support .venv/bin/python -m cluster``
"""

import signal
import sys
from threading import Event

from cluster.small_cluster import PLUGINS, SHELL, running, why_not


def main() -> int:
    """Return 1 if there is no kubectl that could ask it."""
    if missing := why_not():
        sys.stderr.write(f"{missing}: it is what the stand-in is for\n")
        return 1
    over = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with running({**PLUGINS, **SHELL}) as cluster:
        sys.stdout.write(f"export KUBECONFIG={cluster.config}\n")
        sys.stdout.flush()
        over.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
