"""NVIDIA's program ``nvidia-cuda-mps-control``: starting it, and asking it, in bounded time.

A pod can write into the directory of pipes. So no file there names a process to be killed, and no
link in it is followed.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_gpu.mps.daemons import Daemon

_PROGRAM: Final = "nvidia-cuda-mps-control"
_OUTPUT: Final = "foreground.log"
_PATIENCE: Final = 10.0
_DEATH: Final = 5.0
_MOST_SERVERS: Final = 64
_ANSWER_BYTES: Final = 1 << 16
_MAX_PATH: Final = 107
"""Bytes of the path of a socket."""
_LOG_BYTES: Final = 4 << 20
_SELINUX: Final = Path("/sys/fs/selinux/enforce")


class ControlError(dp.DevicePluginError):
    """A control daemon cannot be started, or does not do what it is asked."""


def open_to_containers(path: Path) -> None:
    """Give a directory the label of containers' own files, where SELinux decides."""
    if _SELINUX.exists():
        os.setxattr(path, "security.selinux", b"system_u:object_r:container_file_t:s0")


class Control:
    """A control daemon below ``home``; at most one process of its own at a time. For one thread."""

    def __init__(self, home: Path) -> None:
        self.pipe, self.log = home / "pipe", home / "log"
        self.process: subprocess.Popen[bytes] | None = None
        """Was started and not ended; it may have died."""
        self._limited: list[int] = []
        named = {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "CUDA_MPS_LOG_DIRECTORY": self.log}
        self._variables = {name: str(path) for name, path in named.items()}

    def start(self, uuids: Iterable[str]) -> None:
        """Start it for these devices, in place of what is left of another. It answers later.

        ControlError while the other has clients.
        """
        if len(os.fsencode(self.pipe / "control")) > _MAX_PATH:
            raise ControlError(f"the path {self.pipe}/control is too long: use a shorter resource")
        for path in (self.pipe, self.log):
            path.mkdir(parents=True, exist_ok=True)
        open_to_containers(self.pipe)
        if clients := self._left():
            raise ControlError(
                f"another control daemon serves {clients} clients in {self.pipe}: it is replaced "
                "once they have ended"
            )
        for entry in list(os.scandir(self.pipe)):  # not itself: containers have it mounted
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink(missing_ok=True)
        with (self.log / _OUTPUT).open("wb") as output:
            self._variables["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
            self.process = self._run("-f", stdin=subprocess.DEVNULL, stdout=output)

    def _left(self) -> int:
        """Return how many clients another daemon here has, and end it if it has none."""
        with suppress(ControlError):  # a dead one does not answer; neither does one that hangs
            if clients := self.clients():
                return clients
            self.ask("quit")
        return 0

    def death(self) -> str:
        """Return how its process ended, with its last words; empty if it did not."""
        # It is not reaped here: until then, its number and that of its group are nobody else's.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        found = self.process and os.waitid(os.P_PID, self.process.pid, flags)
        if not found:
            return ""
        said = ""
        with suppress(OSError), (self.log / _OUTPUT).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 300))  # before that may be a huge hole
            said = " ".join(file.read().decode(errors="replace").split())
        how = "status" if found.si_code == os.CLD_EXITED else "signal"
        return f"it ended with {how} {found.si_status}{said and f': {said}'}"

    def end(self, patience: float = 0.0) -> None:
        """End it and its servers: by itself within ``patience`` seconds, or else at once."""
        if not (process := self.process):
            return
        if patience:
            with suppress(ControlError, subprocess.TimeoutExpired):
                self.ask("quit")
                process.wait(patience)
        if process.returncode is None:  # until here, another thread may lose patience
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # it hangs in the driver
                process.wait(_DEATH)
        self.process = None

    def displaced(self) -> str:
        """Return why no client finds it any more; empty if they do."""
        with suppress(OSError):
            if self._inodes() == self._limited:
                return ""
        return "its directory of pipes, or its socket there, was deleted"

    def _inodes(self) -> list[int]:
        return [path.lstat().st_ino for path in (self.pipe, self.pipe / "control")]

    def ask(self, command: str) -> str:
        """Return the answer to a command, or raise ControlError."""
        if not (self.pipe / "control").exists():
            raise ControlError(f"it has no socket {self.pipe}/control")
        asked, asks = map(os.fdopen, os.pipe(), ("rb", "wb"))
        with asked, asks:
            asks.write(f"{command}\n".encode())
            asks.close()
            process = self._run(stdin=asked, stdout=subprocess.PIPE)
        timer = Timer(_PATIENCE, process.kill)
        timer.start()
        with process:
            answer = process.stdout.read(_ANSWER_BYTES) if process.stdout else b""
        timer.cancel()
        said = answer.decode(errors="replace").strip()
        if process.returncode == -signal.SIGKILL:
            raise ControlError(f"{command!r} was not answered in {_PATIENCE:g} s")
        if process.returncode:
            raise ControlError(f"{command!r} failed with {process.returncode}: {said[:200]}")
        return said

    def _run(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - the driver's program
                [_PROGRAM, *words],
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._variables},
                start_new_session=True,
                **more,
            )
        except FileNotFoundError as error:
            raise ControlError(
                f"{_PROGRAM} is not in this container: NVIDIA's runtime brings it with "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            ) from error

    def clients(self) -> int:
        """Return how many processes use it."""
        servers = [one for one in self.ask("get_server_list").split() if one.isdecimal()]
        lists = [self.ask(f"get_client_list {one}") for one in servers[:_MOST_SERVERS]]
        return sum(map(str.isdecimal, " ".join(lists).split()))

    def limit(self, daemon: Daemon) -> None:
        """Set the limits of clients that come from now on, and read each back."""
        if percent := daemon.threads:
            self._set("active_thread_percentage", f"{percent}", rf"{percent}(\.\d*)?")
        for ordinal, (uuid, size) in enumerate(daemon.devices.items()):
            if size:  # some drivers round what they show
                shown = rf"{size}M|{size // 1024}G"
                self._set("device_pinned_mem_limit", f"{size}M", shown, str(ordinal), uuid)
        self._limited = self._inodes()

    def _set(self, what: str, value: str, shown: str, *names: str) -> None:
        # Drivers take one name of a device or the other, and may ignore what they do not take.
        for words in [f"{what} {name}" for name in names] or [what]:
            with suppress(ControlError):
                self.ask(f"set_default_{words} {value}")
                said = self.ask(f"get_default_{words}")
                if re.search(rf"(^|\s)({shown})$", said):  # the linker's warnings may come first
                    return
        where = f" for {' or '.join(names)}" if names else ""
        raise ControlError(f"the driver does not take {what} {value}{where}")

    def bound_logs(self) -> None:
        """Empty logs that are too long. The daemon goes on writing at its place: a hole is free."""
        with suppress(OSError):
            for path in self.log.iterdir():
                if path.lstat().st_blocks * 512 > _LOG_BYTES:
                    os.truncate(path, 0)
