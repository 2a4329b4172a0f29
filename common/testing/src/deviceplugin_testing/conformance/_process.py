"""The plugin under test: its process, its output, and what /proc says of it."""

import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from deviceplugin._app.signals import handled
from deviceplugin.errors import ConfigError
from deviceplugin_testing.conformance._subject import fill

_LONGEST_LINE: Final = 300
_CAUSE: Final = re.compile(r"\bpanic: |\bfatal\b|^F\d{4} \d\d:", re.IGNORECASE)
"""What a plugin in Go prints before hundreds of lines about its goroutines."""


def last_words(output: Path, count: int, begin: int = 0) -> list[str]:
    """Return the last ``count`` lines, preceded by the one that says why the plugin ended.

    Long lines are cut. ``begin`` is the offset in the file at which to begin, in bytes.
    """
    cause, last = "", deque[str](maxlen=count)
    with output.open("rb") as written:
        written.seek(begin)
        for line in filter(None, map(_readable, written)):
            last.append(line)
            cause = cause or (line if _CAUSE.search(line) else "")
    return [*last] if cause in {"", *last} else [cause, "...", *last]


def _readable(written: bytes) -> str:
    line = written.decode(errors="replace").strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


PROC: Final = Path("/proc")

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Holdings:
    """The memory, threads and descriptors of a process tree at one moment."""

    rss: int
    """Resident bytes. A shared page counts for each process."""
    pss: int
    """Proportional resident bytes. Of a page that N processes share, 1/N counts for each."""
    private: int
    """Bytes of the pages that only this process has and that it has written to."""
    threads: int
    descriptors: int
    sockets: int


@dataclass(frozen=True, slots=True)
class Activity:
    """The work of the threads of a process tree so far. The difference of two is their work."""

    by_thread: Mapping[int, tuple[int, int]]
    """Nanoseconds of CPU time, and number of times that the thread went to sleep, by thread id."""

    @property
    def total(self) -> int:
        """Nanoseconds of CPU time of all threads that there are."""
        return sum(cpu for cpu, _ in self.by_thread.values())

    def since(self, earlier: "Activity") -> tuple[float, int]:
        """Return CPU seconds and wake-ups since ``earlier``.

        A thread that was started since counts in full; one that has ended does not count.
        """
        cpu = wakeups = 0
        for thread, (now_cpu, now_wakeups) in self.by_thread.items():
            then_cpu, then_wakeups = earlier.by_thread.get(thread, (0, 0))
            cpu += now_cpu - then_cpu
            wakeups += now_wakeups - then_wakeups
        return cpu / 1e9, wakeups


def holdings(pid: int) -> Holdings:
    """Return what ``pid`` and its descendants have now; zeros if there is no such process."""
    pids = list(family(pid))
    sizes = [_sizes(PROC / str(each) / "smaps_rollup") for each in pids]
    links = [link for each in pids for link in _descriptors(each)]
    return Holdings(
        rss=sum(rss for rss, _, _ in sizes),
        pss=sum(pss for _, pss, _ in sizes),
        private=sum(private for _, _, private in sizes),
        threads=sum(len(list(_threads(each))) for each in pids),
        descriptors=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
    )


def activity(pid: int) -> Activity:
    """Return what the threads of ``pid`` and its descendants have done so far."""
    found = {}
    for each in family(pid):
        for thread in _threads(each):
            with suppress(OSError):
                found[int(thread.name)] = (_cpu(thread), _sleeps(thread))
    return Activity(found)


def family(pid: int) -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents.setdefault(_parent(entry), []).append(int(entry.name))
    todo = [pid]
    while todo:
        each = todo.pop()
        todo += parents.get(each, [])
        yield each


def _parent(process: Path) -> int:
    # The second field is the command in parentheses, which can contain anything.
    text = (process / "stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def _threads(pid: int) -> Iterator[Path]:
    with suppress(OSError):
        yield from (PROC / str(pid) / "task").iterdir()


def _descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for path in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                yield str(path.readlink())


def _sizes(rollup: Path) -> tuple[int, int, int]:
    with suppress(OSError):
        fields = _fields(rollup)
        rss, pss, private = (
            int(fields[name].split()[0]) * _KIB for name in ("Rss", "Pss", "Private_Dirty")
        )
        return rss, pss, private
    return 0, 0, 0


def _cpu(thread: Path) -> int:
    try:
        return int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    except FileNotFoundError:  # a kernel without it only has ticks of 10 ms
        text = (thread / "stat").read_text(encoding="utf-8", errors="replace")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _sleeps(thread: Path) -> int:
    return int(_fields(thread / "status")["voluntary_ctxt_switches"])


def _fields(path: Path) -> Mapping[str, str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


_LAST_LINES: Final = 3
_VARIABLES: Final = (
    "plugin_dir",
    "pod_resources_socket",
    "registry_dir",
    "http_address",
    "state_file",
)
"""Placeholders that are in the environment too, as ``DP_PLUGIN_DIR`` and so on."""


@contextmanager
def _uninterrupted(give_up: Callable[[], None]) -> Iterator[None]:
    """Put signals that interrupt off to the end, and ``give_up`` then.

    Popen would lose a process amid whose start one comes.
    """
    came: list[int] = []
    ends = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    interrupt = [one for one in ends if callable(signal.getsignal(one))]
    with handled(lambda number, _: came.append(number), *interrupt):
        yield
    if came:
        give_up()
        signal.raise_signal(came[0])


class Plugin:
    """One process of the plugin, with the processes that it starts."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        placeholders: Mapping[str, str],
        output: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start ``command``, with each ``{name}`` in it replaced.

        Its output goes to the file ``output``. Its environment is this process's and
        ``environment``.

        Raises:
            ConfigError: There is no such program.
        """
        self._output = output
        words = [fill(word, placeholders) for word in command]
        given = {f"DP_{k.upper()}": placeholders[k] for k in _VARIABLES if k in placeholders}
        with output.open("ab") as sink:
            self._begin = sink.tell()
            self.started_at = time.monotonic()
            try:
                with _uninterrupted(self.kill):
                    self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                        words,
                        env={**os.environ, **given, **environment},
                        stdin=subprocess.DEVNULL,
                        stdout=sink,
                        stderr=sink,
                        start_new_session=True,
                    )
            except OSError as error:
                raise ConfigError(f"{words[0]}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the number of the signal; None while it runs."""
        return self._process.poll()

    def terminate(self, timeout: float) -> float | None:
        """Send SIGTERM and return the seconds until it exits; None if it does not."""
        begin = time.monotonic()
        self._process.terminate()
        return time.monotonic() - begin if _ends_within(self._process, timeout) else None

    def kill(self) -> None:
        """Kill it and all processes that it started. Idempotent."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> str:
        """Return the last lines of its output, and the one that says why it ended, on one line."""
        return " | ".join(last_words(self._output, _LAST_LINES, self._begin))


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of ``process``, and return whether it came in time."""
    # With a timeout, wait() would sleep between polls, and notice the end up to 50 ms late.
    waiting = threading.Thread(target=process.wait, name="wait", daemon=True)
    waiting.start()
    waiting.join(seconds)
    return not waiting.is_alive()
