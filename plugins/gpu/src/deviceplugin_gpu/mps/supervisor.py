"""``gpu-mps-daemon``: runs the MPS control daemons that the GPU plugin wants on this node."""

import argparse
import fcntl
import json
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.backoff import MONOTONIC, Waiter
from deviceplugin.kit.log import Problems
from deviceplugin_gpu.mps.control import Control, open_to_containers
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED, read, write
from deviceplugin_gpu.mps.keeper import Keeper

log = logging.getLogger(__name__)

_LOCK: Final = "gpu-mps-daemon.lock"
_SHM: Final = Path("/dev/shm")  # noqa: S108 - where MPS looks for it
_EVERY: Final = 1.0
_STOP: Final = 12.0
"""Seconds for all daemons to end, at once; the pod has 15."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Supervisor:
    """Makes the daemons below ``root`` those that the plugin wants, each by a thread of its own.

    So one that hangs holds up no other. There is one supervisor at a time for a ``root``.
    """

    def __init__(self, root: Path, program: str) -> None:
        self._root, self._program = root, program
        self._keepers: dict[str, tuple[Keeper, Control, Thread]] = {}
        self._lock = Lock()
        self._problems = Problems(log)

    def run(self, waiter: Waiter) -> None:
        """Run them until the waiter is over, and end them."""
        with self._alone(waiter) as is_alone:
            while is_alone and not waiter.is_over():
                try:
                    self._follow()
                    self._problems.over("follow")
                except (dp.DiscoveryError, OSError) as error:
                    self._problems.say("follow", "MPS daemons not updated", error=str(error))
                waiter.until_poked(_EVERY)
            if is_alone:
                self._stop()

    @contextmanager
    def _alone(self, waiter: Waiter) -> Iterator[bool]:
        """Wait until no other supervisor has these daemons; yield whether that is so."""

        def has_lock() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._problems.say("lock", "another gpu-mps-daemon runs: waiting for its end")
                return False
            return True

        with (self._root / _LOCK).open("w") as file:
            yield waiter.until(has_lock, every=_EVERY)

    def publish(self) -> None:
        """Write what there is; OSError if it cannot be written."""
        with self._lock:
            write(self._root / RUNNING, [keeper.state for keeper, _, _ in self._keepers.values()])

    def _follow(self) -> None:
        """Start, replace and end daemons. Without a file, all stay as they are."""
        with self._lock:
            ended = [
                name for name, (_, _, thread) in self._keepers.items() if not thread.is_alive()
            ]
            for name in ended:
                del self._keepers[name]
        self.publish()
        found = read(self._root / WANTED)
        if found is None:
            return
        wanted = {one.name: one for one in found}
        for name, (keeper, _, _) in self._keepers.items():
            if keeper.wanted != wanted.get(name):
                keeper.want(wanted.get(name))
        for name in wanted.keys() - self._keepers.keys():
            control = Control(self._program, self._root / name)
            keeper = Keeper(control, wanted[name], self.publish, Waiter())
            thread = Thread(target=keeper.run, name=name, daemon=True)
            with self._lock:
                self._keepers[name] = keeper, control, thread
            thread.start()

    def _stop(self) -> None:
        """End all at once. One that does not end in time is killed."""
        deadline = MONOTONIC.now() + _STOP
        for keeper, _, _ in self._keepers.values():
            keeper.waiter.end()
        for _, control, thread in self._keepers.values():
            thread.join(max(0.0, deadline - MONOTONIC.now()))
            if thread.is_alive():
                control.end()
        # The sockets are dead, so no container gets a share; another daemon may come.
        (self._root / RUNNING).unlink(missing_ok=True)


class _Lines(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        line = {"time": self.formatTime(record), "level": record.levelname.lower()}
        return json.dumps({**line, "event": record.getMessage(), **fields}, default=str)


def _check(root: Path, shm: Path) -> None:
    """Raise ConfigError if the daemons' clients, which are in other containers, would not work."""
    own = root / "shm"
    try:
        own.mkdir(mode=0o1777, parents=True, exist_ok=True)
        own.chmod(0o1777)
        open_to_containers(own)
        is_shared = own.samefile(shm)
    except OSError as error:
        raise dp.ConfigError(f"--mps-root {root}: {error}") from error
    if not is_shared:
        raise dp.ConfigError(
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
    parser.add_argument("--mps-root", type=Path, default=Path("/mps"), help="as seen here (/mps)")
    parser.add_argument(
        "--control", default="nvidia-cuda-mps-control", help="NVIDIA's program (%(default)s)"
    )
    parser.add_argument(
        "--shm", type=Path, default=_SHM, help="shared memory of the servers (%(default)s)"
    )
    options = parser.parse_args(argv)
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    try:
        _check(options.mps_root, options.shm)
    except dp.ConfigError as error:
        sys.stderr.write(f"gpu-mps-daemon: {error}\n")
        raise SystemExit(2) from error
    signals: list[int] = []  # a handler must take no lock, which this thread may have
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    Supervisor(options.mps_root, options.control).run(Waiter().unless(lambda: bool(signals)))
