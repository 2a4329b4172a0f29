"""MPS without a GPU: the stand-in for NVIDIA's program, its clients, and ``gpu-mps-daemon``."""

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from deviceplugin.kit.backoff import Waiter
from deviceplugin_gpu.mps.daemons import LOCK, RUNNING, WANTED, Daemon, Daemons, read, write
from deviceplugin_gpu.mps.supervisor import Supervisor
from patience import eventually

SCRIPT = Path(__file__).with_name("nvidia_cuda_mps_control.py")


class FakeMps:
    """A node's mps-root at ``root``, and the program in the path of this process."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.root, self.program = folder / "mps", folder / "nvidia-cuda-mps-control"
        self.log, self._behaviour = folder / "supervisor.log", folder / "behaviour.json"
        (self.root / "shm").mkdir(parents=True)
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -ISs {SCRIPT} "$@"\n')
        self.program.chmod(0o755)
        patched.setenv("FAKE_MPS", str(self._behaviour))
        patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def behave(self, **devices: Mapping[str, str]) -> None:
        """Have the daemons of devices fail, by UUID: see the program."""
        draft = self._behaviour.with_suffix(".draft")
        draft.write_text(json.dumps(devices))
        draft.replace(self._behaviour)

    def want(self, daemons: Daemons) -> None:
        """Want these, as the plugin does."""
        write(self.root / WANTED, daemons)

    def wanted(self) -> Daemons:
        return read(self.root / WANTED) or {}

    def run(self, daemons: Daemons) -> None:
        """Say that these are there, as ``gpu-mps-daemon`` does."""
        write(self.root / RUNNING, daemons)

    def running(self) -> Daemons:
        return read(self.root / RUNNING) or {}

    def wait_for(self, daemons: Daemons) -> None:
        """Wait until these are ready, and there are no others."""
        eventually(lambda: self.running() == daemons, lambda: str(self.running()))

    def problem(self, name: str, words: str) -> str:
        """Wait until a daemon has a problem with these words, and return it."""

        def found() -> str:
            one = self.running().get(name)
            return one.problem if one and words in one.problem else ""

        return eventually(found, lambda: f"{words}: {self.running()}")

    def pid(self, name: str) -> int:
        return int((self.root / name / "pipe/nvidia-cuda-mps-control.pid").read_text())

    def commands(self, name: str) -> list[str]:
        lines = (self.root / name / "log/control.log").read_text().splitlines()
        return [line.removeprefix("Cmd:") for line in lines]

    def counted(self, name: str) -> None:
        """Wait until the clients of a daemon have been counted once more."""
        asked = len(self.commands(name))
        eventually(lambda: len(self.commands(name)) > asked + 3)

    @contextmanager
    def client(self, name: str) -> Iterator[socket.socket]:
        """Be a client of a daemon, as a container is, and have it counted."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(self.root / name / "pipe/control"))
            client.send(b"client")
            assert b"served" == client.recv(100)
            self.counted(name)
            yield client

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Have gpu-mps-daemon in a thread."""
        waiter = Waiter()
        thread = Thread(target=Supervisor(self.root).run, args=(waiter,))
        thread.start()
        try:
            yield
        finally:
            waiter.end()
            thread.join()

    @contextmanager
    def serving(self, daemons: Daemons) -> Iterator[None]:
        """Have gpu-mps-daemon serve these."""
        self.want(daemons)
        with self.supervised():
            self.wait_for(daemons)
            yield

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        """Have gpu-mps-daemon as a process; what it writes is in ``log``."""
        words = [f"--mps-root={self.root}", f"--shm={self.root}/shm"]
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "deviceplugin_gpu.mps", *words]
            process = subprocess.Popen(command, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log.read_text().splitlines()]


@contextmanager
def fake_mps(patched: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    """Have a node's mps-root by a short path: that of a socket has 107 bytes."""
    with TemporaryDirectory(prefix="mps") as folder:
        yield FakeMps(Path(folder), patched)


@contextmanager
def alive(root: Path) -> Iterator[None]:
    """Have the lock of a ``gpu-mps-daemon`` that runs."""
    root.mkdir(exist_ok=True)
    with (root / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def daemon(*uuids: str, memory: int = 10240, threads: int = 25) -> Daemon:
    """Return a daemon with the same limit for each device."""
    return Daemon(dict.fromkeys(uuids, memory), threads)


def listening(
    root: Path, name: str = "nvidia.com/gpu", kind: int = socket.SOCK_SEQPACKET
) -> socket.socket:
    """Listen as a control daemon does, and say nothing."""
    folder = root / name / "pipe"
    folder.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(str(folder / "control"))
    server.listen()
    return server
