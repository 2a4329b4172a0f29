"""Plugins that do not stop well, or cost too much."""

import os
import socket
import subprocess
import sys
import threading
import time

from tests.conformance.bad_plugins.good import Good


class LingersAfterSigterm(Good):
    def end(self) -> int:
        time.sleep(6)
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


class LeaksThreads(Good):
    def enlisted(self) -> None:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


class LeaksDescriptors(Good):
    def begin(self) -> None:
        self.leaked: list[int] = []

    def enlisted(self) -> None:
        self.leaked.append(os.open("/dev/null", os.O_RDONLY))


class LeaksMemory(Good):
    def begin(self) -> None:
        self.leaked: list[bytes] = []

    def enlisted(self) -> None:
        self.leaked.append(os.urandom(4 * 1024 * 1024))


class LeavesSocketFiles(Good):
    def enlisted(self) -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(self.directory / f"old-{time.monotonic_ns()}.sock"))


class BurnsCpu(Good):
    def begin(self) -> None:
        program = "while True: pass"
        self.child = subprocess.Popen([sys.executable, "-S", "-c", program])

    def end(self) -> int:
        self.child.kill()
        self.child.wait()
        return 0


class WakesUpOften(Good):
    def begin(self) -> None:
        threading.Thread(target=self.poll, daemon=True).start()

    def poll(self) -> None:
        while not self.stopping.wait(0.004):
            pass
