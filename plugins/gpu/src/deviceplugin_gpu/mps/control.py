"""NVIDIA's program ``nvidia-cuda-mps-control``: starting it, and asking it, in bounded time.

A pod can write into the directory of pipes. So no file there names a process to be killed, and no
link in it is followed.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu.mps.daemons import Daemon

_PATIENCE: Final = 10.0
_DEATH: Final = 5.0
_MOST_SERVERS: Final = 64
_LOG_BYTES: Final = 4 << 20
_BLOCK: Final = 512
_MISSING: Final = (
    "is not in this container: NVIDIA's runtime brings it with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
)
_SELINUX: Final = Path("/sys/fs/selinux/enforce")
Place = tuple[int, int]


class ControlError(dp.DevicePluginError):
    """A control daemon cannot be started, or does not do what it is asked."""


def open_to_containers(path: Path) -> None:
    """Give a directory the label of containers' own files, where SELinux decides."""
    if _SELINUX.exists():
        os.setxattr(path, "security.selinux", b"system_u:object_r:container_file_t:s0")


class Control:
    """A control daemon below ``home``; at most one process of its own at a time. For one thread."""

    def __init__(self, program: str, home: Path) -> None:
        self.pipe, self.log = home / "pipe", home / "log"
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the directories, and end what a dead supervisor has left, if nobody uses it.

        The directory of pipes stays the same one, because containers have it mounted.
        """
        for path in (self.pipe, self.log):
            path.mkdir(parents=True, exist_ok=True)
        open_to_containers(self.pipe)
        clients = 0
        with suppress(ControlError):  # a dead one does not answer; neither does one that hangs
            clients = self.clients()
            if not clients:
                self.ask("quit")
        if clients:
            raise ControlError(
                f"another control daemon serves {clients} clients in {self.pipe}: it is replaced "
                "once they have ended"
            )
        for entry in list(os.scandir(self.pipe)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink(missing_ok=True)

    def start(self, uuids: Iterable[str]) -> None:
        """Start it for these devices. It answers later."""
        with (self.log / "foreground.log").open("wb") as output:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the driver's program
                    [self._program, "-f"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment() | {"CUDA_VISIBLE_DEVICES": ",".join(uuids)},
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise ControlError(f"{self._program} {_MISSING}") from error

    @property
    def has_process(self) -> bool:
        """Whether it was started and not ended; it may have died."""
        return self._process is not None

    def death(self) -> str:
        """Return how its process ended, with its last words; empty if it runs."""
        if self._process is None:
            return "it does not run"
        # It is not reaped here: until then, its number and that of its group are nobody else's.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        found = os.waitid(os.P_PID, self._process.pid, flags)
        if found is None:
            return ""
        said = ""
        with suppress(OSError), (self.log / "foreground.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 300))
            said = " ".join(file.read().decode(errors="replace").split())
        how = "status" if found.si_code == os.CLD_EXITED else "signal"
        return f"it ended with {how} {found.si_status}{said and f': {said}'}"

    def end(self, patience: float = 0.0) -> None:
        """End it and its servers: by itself within ``patience`` seconds, or else at once."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if patience:
            with suppress(ControlError, subprocess.TimeoutExpired):
                self.ask("quit")
                process.wait(patience)
                return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # it hangs in the driver
            process.wait(_DEATH)

    def place(self) -> tuple[Place, Place]:
        """Return which files its directory and its socket are; OSError if they are gone."""
        found = self.pipe.lstat(), (self.pipe / "control").lstat()
        return (found[0].st_dev, found[0].st_ino), (found[1].st_dev, found[1].st_ino)

    def ask(self, command: str) -> str:
        """Return the answer to a command, or raise ControlError."""
        if not (self.pipe / "control").exists():
            raise ControlError(f"it has no socket {self.pipe}/control")
        try:
            done = subprocess.run(  # noqa: S603 - the driver's program
                [self._program],
                input=f"{command}\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE,
                env=self._environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ControlError(f"{command!r} was not answered in {_PATIENCE:g} s") from None
        except FileNotFoundError as error:
            raise ControlError(f"{self._program} {_MISSING}") from error
        said = done.stdout.strip() or done.stderr.strip()
        if done.returncode:
            raise ControlError(f"{command!r} failed with {done.returncode}: {said[:200]}")
        return said

    def clients(self) -> int:
        """Return how many processes use it."""
        servers = [one for one in self.ask("get_server_list").split() if one.isdecimal()]
        lists = [self.ask(f"get_client_list {one}") for one in servers[:_MOST_SERVERS]]
        return sum(map(str.isdecimal, " ".join(lists).split()))

    def limit(self, daemon: Daemon) -> None:
        """Set the limits of clients that come from now on, and read each back."""
        if daemon.threads:
            self.ask(f"set_default_active_thread_percentage {daemon.threads}")
            said = self.ask("get_default_active_thread_percentage")
            if said.partition(".")[0] != str(daemon.threads):
                raise ControlError(f"the limit of threads is {said!r}, not {daemon.threads} %")
        for ordinal, device in enumerate(daemon.devices):
            # Drivers take one or the other, and may ignore what they do not take.
            if device.memory and not any(
                self._takes(name, device.memory) for name in (str(ordinal), device.uuid)
            ):
                raise ControlError(
                    f"the driver takes no limit of memory for {device.uuid}, by index or UUID"
                )

    def _takes(self, device: str, memory: int) -> bool:
        with suppress(ControlError):
            self.ask(f"set_default_device_pinned_mem_limit {device} {memory}M")
            said = self.ask(f"get_default_device_pinned_mem_limit {device}")
            return said in {f"{memory}M", f"{memory // 1024}G"}  # some drivers round what they show
        return False

    def bound_logs(self) -> None:
        """Empty logs that are too long. The daemon goes on writing at its place: a hole is free."""
        with suppress(OSError):
            for path in self.log.iterdir():
                if path.lstat().st_blocks * _BLOCK > _LOG_BYTES:
                    os.truncate(path, 0)

    def _environment(self) -> dict[str, str]:
        named = {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "CUDA_MPS_LOG_DIRECTORY": self.log}
        return {**os.environ, **{name: str(path) for name, path in named.items()}}
