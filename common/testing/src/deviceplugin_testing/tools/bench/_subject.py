"""The plugin to measure: its command, and its process on a simulated kubelet."""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin_testing.conformance._process import Holdings, Plugin, holdings, last_words
from deviceplugin_testing.conformance._subject import fill, scratch
from deviceplugin_testing.simulator import SimulatedKubelet
from deviceplugin_testing.tools.bench._figures import BenchError

KINDS: Final = ("file", "directory", "node", "link")
"""``link`` is a symbolic link to ``/dev/null``, for those who may not make nodes."""
_NULL: Final = Path("/dev/null")


def make_entry(path: Path, kind: str) -> None:
    """Make an entry of ``kind`` at ``path``. A node is another name for ``/dev/null``."""
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(_NULL)
    elif kind == "node":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, _NULL.stat().st_rdev)
        except PermissionError as error:
            raise BenchError(
                f"{path}: cannot make a device node: that needs CAP_MKNOD outside of a user "
                "namespace, so run it as root, or give --entries link"
            ) from error
    else:
        path.touch()


def toggle_entry(path: Path, kind: str) -> None:
    """Remove the entry at ``path``, or make one of ``kind`` if there is none."""
    if not path.exists():
        make_entry(path, kind)
    elif path.is_dir():
        path.rmdir()
    else:
        path.unlink()


def make_devices(directory: Path, number: int, kind: str) -> Path:
    devices = directory / "devices"
    devices.mkdir()
    for one in range(number):
        make_entry(devices / f"dev{one}", kind)
    return devices


_TIMEOUT: Final = 60.0
"""Seconds to wait for any reaction of a plugin, and of one with hundreds of resources longer."""
_EACH: Final = 0.5
"""Seconds for each resource, on a busy machine."""
_STOP_TIMEOUT: Final = 10.0
_TAIL: Final = 5
"""Lines of a failed plugin's output in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSubject:
    """A plugin to measure; ``{plugin_dir}`` and ``{devices_dir}`` are new ones in each run."""

    title: str
    command: Sequence[str]
    resources: int = 1
    """Number of resources that it advertises. It has started when all are registered."""
    files: int = 8
    """Number of entries of ``{devices_dir}`` at the start."""
    entries: str = "file"
    """The kind of these entries, and of those that are added: one of ``KINDS``."""
    touch: str = ""
    """Directory in which adding or removing an entry changes the list of devices."""
    http_address: str = "off"
    comes_back: bool = True
    """Whether it registers again after a restart of the kubelet."""


class Run:
    """One process of ``subject``, with its kubelet."""

    def __init__(self, subject: BenchSubject, kubelet: SimulatedKubelet) -> None:
        self.subject = subject
        self.kubelet = kubelet
        devices = make_devices(kubelet.root, subject.files, subject.entries)
        self._placeholders = {
            "plugin_dir": str(kubelet.plugin_dir),
            "pod_resources_socket": str(kubelet.pod_resources_socket),
            "http_address": subject.http_address,
            "devices_dir": str(devices),
            "state_file": str(kubelet.root / "state"),
        }
        self._output = kubelet.root / "output"
        try:
            self._plugin = Plugin(
                subject.command, placeholders=self._placeholders, output=self._output
            )
        except ConfigError as error:
            raise BenchError(str(error)) from error
        self.started_at = self._plugin.started_at
        self.pid = self._plugin.pid

    def stop(self) -> float:
        """End the process as Kubernetes does, and return the seconds that this took."""
        begin = time.monotonic()
        if self._plugin.terminate(_STOP_TIMEOUT) is None:
            self._plugin.kill()
        return time.monotonic() - begin

    @property
    def touch_dir(self) -> Path | None:
        return Path(fill(self.subject.touch, self._placeholders)) if self.subject.touch else None

    def holdings(self) -> Holdings:
        return holdings(self.pid)

    def wait(self, condition: Callable[[], object], what: str, timeout: float = 0.0) -> float:
        """Return the time when ``condition()`` became true; raise ``BenchError`` if it does not."""
        timeout = timeout or max(_TIMEOUT, _EACH * self.subject.resources)

        def holds() -> bool:
            if condition():
                return True
            if self._plugin.status is not None:
                raise BenchError(f"the plugin ended before {what}{self._tail()}")
            return False

        try:
            self.kubelet.wait(holds, timeout=timeout, what=what)
        except TimeoutError:
            raise BenchError(f"no {what} within {timeout:g} s{self._tail()}") from None
        return time.monotonic()

    def wait_registered(self) -> float:
        expected = self.subject.resources
        return self.wait(
            lambda: len(self.kubelet.registered) >= expected, f"registration of {expected}"
        )

    def wait_listed(self) -> float:
        """Wait until there is a list of all resources, and return the time."""
        self.wait(self._listed, "a list of devices")
        return self.listed_at(self.kubelet.registered)

    def listed_at(self, names: Iterable[str]) -> float:
        """Return the time when the kubelet had applied the latest list of resources ``names``.

        Writing the checkpoint does not count: it takes far longer in Python than in a real kubelet.
        """
        return max(map(self.kubelet.metrics.listed_at.__getitem__, names))

    def _listed(self) -> bool:
        names = self.kubelet.registered
        return len(names) >= self.subject.resources and all(map(self.kubelet.lists_received, names))

    def _tail(self) -> str:
        lines = last_words(self._output, _TAIL)
        if not lines:
            return "; it wrote nothing"
        return "; its last words:" + "".join(f"\n  {line}" for line in lines)


@contextmanager
def running(subject: BenchSubject) -> Iterator[Run]:
    """Run ``subject`` on a new kubelet, in a directory that is deleted afterwards."""
    with scratch("dpb-") as root, SimulatedKubelet(root) as kubelet:
        run = Run(subject, kubelet)
        try:
            yield run
        finally:
            run.stop()
