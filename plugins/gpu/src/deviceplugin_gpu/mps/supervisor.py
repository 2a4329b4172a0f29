"""``gpu-mps-daemon``: runs the MPS control daemons that the GPU plugin wants on this node."""

import argparse
import fcntl
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.backoff import MONOTONIC, Waiter
from deviceplugin.kit.log import Problems, configure
from deviceplugin_gpu.mps.control import Control, open_to_containers
from deviceplugin_gpu.mps.daemons import LOCK, RUNNING, WANTED, read, write
from deviceplugin_gpu.mps.keeper import Keeper

log = logging.getLogger(__name__)

_EVERY: Final = 1.0
_STOP: Final = 12.0
"""Seconds for all daemons to end, at once; the pod has 15."""


class Supervisor:
    """Makes the daemons below ``root`` those that the plugin wants, each by a thread of its own.

    So one that hangs holds up no other. There is one supervisor at a time for a ``root``.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._keepers: dict[str, Keeper] = {}
        self._lock = Lock()
        self._problems = Problems(log)

    def run(self, waiter: Waiter) -> None:
        """Run them until the waiter is over, and end them."""
        with (self._root / LOCK).open("w") as file:
            while not waiter.is_over():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it may have it already
                    self._follow()
                    self._problems.over("follow")
                except BlockingIOError:
                    self._problems.say("lock", "another gpu-mps-daemon runs: waiting for its end")
                except (dp.DiscoveryError, OSError) as error:
                    self._problems.say("follow", "MPS daemons not updated", error=str(error))
                waiter.until_poked(_EVERY)
            self._stop()

    def publish(self) -> None:
        """Write what there is; OSError if it cannot be written."""
        with self._lock:
            write(self._root / RUNNING, {name: one.state for name, one in self._keepers.items()})

    def _follow(self) -> None:
        """Start, replace and end daemons. Without a file, all stay as they are."""
        with self._lock:
            self._keepers = {name: one for name, one in self._keepers.items() if one.is_alive()}
        self.publish()
        if (wanted := read(self._root / WANTED)) is None:
            return
        for name, keeper in self._keepers.items():
            if keeper.wanted != wanted.get(name):
                keeper.want(wanted.get(name))
        for name in wanted.keys() - self._keepers.keys():
            keeper = Keeper(name, Control(self._root / name), wanted[name], self.publish)
            with self._lock:
                self._keepers[name] = keeper
            keeper.start()

    def _stop(self) -> None:
        """End all at once. One that does not end in time is killed."""
        deadline = MONOTONIC.now() + _STOP
        for keeper in self._keepers.values():
            keeper.waiter.end()
        for keeper in self._keepers.values():
            keeper.join(max(0.0, deadline - MONOTONIC.now()))
            if keeper.is_alive():
                keeper.control.end()
        if self._keepers:  # or another gpu-mps-daemon has written it
            (self._root / RUNNING).unlink(missing_ok=True)


def _problem(root: Path, shm: Path) -> str:
    """Return why the daemons' clients, which are in other containers, would not work."""
    own = root / "shm"
    try:
        own.mkdir(mode=0o1777, parents=True, exist_ok=True)
        own.chmod(0o1777)
        open_to_containers(own)
        if own.samefile(shm):
            return ""
    except OSError as error:
        return f"--mps-root {root}: {error}"
    return (
        f"{shm} is not {own}, in which MPS servers and containers share memory: mount the "
        f"directory shm of the host's mps-root as {shm}, as the component gpu-mps does"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``gpu-mps-daemon``. Exit status: 0 after a signal, 2 where MPS cannot be served."""
    parser = argparse.ArgumentParser(
        "gpu-mps-daemon",
        description="Run the MPS control daemons that gpu-device-plugin wants on this node. It "
        f"reads {WANTED} below mps-root, and writes {RUNNING}. SIGTERM ends the daemons, with the "
        "CUDA contexts of their clients.",
    )
    for name, default, what in (
        ("--mps-root", "/mps", "the host's mps-root, as mounted here"),
        ("--shm", "/dev/shm", "shared memory of the servers"),  # noqa: S108 - where MPS looks for it
    ):
        parser.add_argument(name, type=Path, default=default, help=f"{what} (%(default)s)")
    options = parser.parse_args(argv)
    configure("info", "auto")
    if problem := _problem(options.mps_root, options.shm):
        parser.exit(2, f"gpu-mps-daemon: {problem}\n")
    log.info("gpu-mps-daemon started", extra={"mps_root": str(options.mps_root)})
    signals: list[int] = []  # a handler must take no lock, which this thread may have
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    Supervisor(options.mps_root).run(Waiter().unless(lambda: bool(signals)))
