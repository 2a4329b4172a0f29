"""MPS without a GPU: the stand-in for NVIDIA's program, its clients, and ``gpu-mps-daemon``."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from deviceplugin.kit.backoff import Waiter
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED, Daemon, Limited, read, write
from deviceplugin_gpu.mps.supervisor import Supervisor
from patience import eventually

SCRIPT = Path(__file__).with_name("nvidia_cuda_mps_control.py")


class FakeMps:
    """A node's mps-root at ``root``, and the program below ``path``."""

    def __init__(self, path: Path, root: Path) -> None:
        self.root, self.program = root, path / "nvidia-cuda-mps-control"
        self._behaviour = path / "behaviour.json"
        (root / "shm").mkdir(parents=True)
        script = f'#!/bin/sh\nexec {sys.executable} -ISs {SCRIPT} "$@"\n'
        self.program.write_text(script)
        self.program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "FAKE_MPS": str(self._behaviour)}

    def behave(self, **devices: Mapping[str, str]) -> None:
        """Have the daemons of devices fail, by UUID: see the program."""
        draft = self._behaviour.with_suffix(".draft")
        draft.write_text(json.dumps(devices))
        draft.replace(self._behaviour)

    def want(self, *daemons: Daemon) -> None:
        write(self.root / WANTED, daemons)

    def running(self) -> dict[str, Daemon]:
        return {one.name: one for one in read(self.root / RUNNING) or ()}

    def wait_for(self, *daemons: Daemon) -> None:
        """Wait until these are ready, and there are no others."""
        expected = {one.name: one for one in daemons}
        eventually(lambda: self.running() == expected, lambda: str(self.running()))

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

    @contextmanager
    def client(self, name: str) -> Iterator[socket.socket]:
        """Be a client of a daemon, as a container is."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(self.root / name / "pipe/control"))
            client.send(b"client")
            assert b"served" == client.recv(100)
            yield client

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Have gpu-mps-daemon in a thread."""
        waiter = Waiter()
        thread = Thread(target=Supervisor(self.root, str(self.program)).run, args=(waiter,))
        thread.start()
        try:
            yield
        finally:
            waiter.end()
            thread.join()

    @contextmanager
    def process(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Have gpu-mps-daemon as a process; what it writes is in ``log``."""
        words = [f"--mps-root={self.root}", f"--control={self.program}", f"--shm={self.root}/shm"]
        command = [sys.executable, "-m", "deviceplugin_gpu.mps", *words, *more]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=self.environment, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    @property
    def log(self) -> Path:
        return self.program.with_name("supervisor.log")

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log.read_text().splitlines()]


def daemon(name: str, *uuids: str, memory: int = 10240, threads: int = 25) -> Daemon:
    """Return a daemon with the same limit for each device."""
    return Daemon(name, tuple(Limited(uuid, memory) for uuid in uuids), threads)


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
