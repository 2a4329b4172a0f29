"""Plugins that do not stop well, or cost too much."""

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time

from tests.conformance.bad_plugins.good import Good, Identity


class LingersAfterSigterm(Good):
    def end(self) -> int:
        time.sleep(0.8)
        return 0


class ExitsWithThree(Good):
    def end(self) -> int:
        return 3


class LeavesItsSocket(Good):
    def stop(self) -> None:
        if self.stopping.is_set():
            os._exit(0)
        super().stop()


class RetriesWithoutListening(Good):
    def retry(self) -> None:
        time.sleep(0.1)
        if self.losses:
            self.stopping.clear()


class OnlyOne(Good):
    """It does nothing wrong, but ends where another of it runs."""

    def begin(self) -> None:
        self.lock = os.open(os.environ["ONLY_ONE"], os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another one runs")


class Leaks(Good):
    """Leaks threads, descriptors and memory, which are different checks."""

    def begin(self) -> None:
        self.leaked: list[object] = []

    def enlisted(self) -> None:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        self.leaked += [socket.socket(), os.urandom(4 * 1024 * 1024)]


class LeavesSocketFiles(Good):
    def enlisted(self) -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(self.directory / f"old-{time.monotonic_ns()}.sock"))


SPIN = """
import time
while True:
    end = time.process_time() + 0.1
    while time.process_time() < end: pass
    time.sleep(0.1)
"""
"""Half of a CPU: others need some, too."""


class Burner(Good):
    child: subprocess.Popen[bytes] | None = None

    def burn(self) -> None:
        if self.child is None:
            self.child = subprocess.Popen([sys.executable, "-S", "-c", SPIN])

    def end(self) -> int:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        return 0


class BurnsCpu(Burner):
    def begin(self) -> None:
        self.burn()


class BurnsCpuAfterALoss(Burner):
    registered_with: Identity = None

    def enlisted(self) -> None:
        kubelet, before = self.kubelet(), self.registered_with
        if before is not None and self.is_bad(restarted=kubelet != before):
            self.burn()
        self.registered_with = kubelet

    def is_bad(self, *, restarted: bool) -> bool:
        raise NotImplementedError


class BurnsCpuAfterARestart(BurnsCpuAfterALoss):
    def is_bad(self, *, restarted: bool) -> bool:
        return restarted


class BurnsCpuAfterAStreamLoss(BurnsCpuAfterALoss):
    def is_bad(self, *, restarted: bool) -> bool:
        return not restarted


class SpinsOnceTheKubeletIsGone(Burner):
    """As one that goes on reading from a watcher that was closed; it never registers again."""

    def watch(self, kubelet: Identity) -> None:
        super().watch(kubelet)
        self.burn()
        self.stopping.wait()


class RetriesWithoutAPause(Good):
    def retry(self) -> None: ...


class WakesUpOften(Good):
    def begin(self) -> None:
        threading.Thread(target=self.poll, daemon=True).start()

    def poll(self) -> None:
        while not self.stopping.wait(0.004):
            pass
