"""The directories of the host that this process has by mounts, and whether the host still has them.

A container keeps what was mounted at its start. If a directory is then deleted, renamed or covered
on the host, only a new container gets the one that the host has now.
"""

import logging
import math
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from deviceplugin._config.settings import Settings, paths
from deviceplugin._platform.callbacks import Listeners
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._platform.mounts import MOUNTINFO, Mount, mounts
from deviceplugin._platform.unix_sockets import answers
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.kit.log import Problems
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET

log = logging.getLogger(__name__)

_OF_POD: Final = re.compile(r"/pods/[^/]+/(etc-hosts$|containers/|volumes/|volume-subpaths/)")
"""What the kubelet makes for one pod, such as its volumes of ConfigMaps. It goes with the pod."""
_SKIPPED: Final = (
    *("nfs", "cifs", "smb", "ceph", "fuse", "9p", "virtiofs", "afs", "lustre", "gpfs", "gluster"),
    *("proc", "sysfs", "cgroup"),
)
"""Beginnings of types of file systems: those whose server can make us wait, and those in which the
kernel itself gives directories other names."""
_ADVICE: Final = "only a new container gets the directory that the host has now"


class _Known(NamedTuple):
    """A mount as it was when it was first seen."""

    root: str
    inode: tuple[int, int]


class _Contact(NamedTuple):
    """Which kubelet there is, and how often one has registered the driver."""

    kubelet: tuple[Identity, ...]
    registrations: int


class _Fault(NamedTuple):
    directory: Path
    text: str
    is_lost: bool = True
    """Whether a restart is needed. A kubelet that has registered us finds us in a renamed directory
    until it restarts, and a new container would have to wait for that, too."""


class HostDirectories:
    """Checks all mounts in a pod, and elsewhere those that the settings have paths on. Thread-safe.

    Outside of containers a path is looked up anew each time, so nothing is ever lost there.
    ``is_connected`` returns whether the kubelet watches any resource; None if it need not.
    ``clock`` measures for how long nobody listens on a socket.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        is_connected: Callable[[], bool | None],
        metrics: Metrics,
        mountinfo: Path = MOUNTINFO,
        clock: Clock = MONOTONIC,
    ) -> None:
        self._own = [settings.plugin_dir, settings.registry_dir, settings.driver_dir]
        self._own += [settings.pod_resources_socket.parent]
        self._registry_dir, self._driver_dir = settings.registry_dir, settings.driver_dir
        self._used = list(paths(settings))
        self._sockets = [settings.plugin_dir / KUBELET_SOCKET, settings.pod_resources_socket]
        self._covered = CoveredSockets(self._sockets, clock)
        self.probed = self._covered.probed
        self._is_connected = is_connected
        self._registrations = 0
        """How often the kubelet has registered the DRA driver."""
        self._metrics = metrics
        self._mountinfo = mountinfo
        self._lock = threading.Lock()
        self._known: dict[tuple[int, Path], _Known] = {}
        self._contacts: dict[Path, _Contact] = {}
        """As it was when a directory was last seen under its first name."""
        self._lost: Mapping[Path, str] = {}
        """Why, by directory. It is replaced and never modified, because other threads read it."""
        self._reported: set[Path] = set()
        self._problems = Problems(log)
        self._listeners = Listeners()
        metrics.lost_directories.labels()

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, from any thread, at a loss or a return; return what ends that."""
        return self._listeners.add(changed)

    def registered(self) -> None:
        """Note that the kubelet has just registered the DRA driver."""
        self._registrations += 1

    def problems(self) -> Sequence[str]:
        """Return which directories were lost at the last check, a message for each."""
        return list(self._lost.values())

    def problem(self, of: Iterable[Path]) -> str:
        """Return why one of the paths ``of`` is on a directory that was lost; empty if none is."""
        if not (lost := self._lost):
            return ""
        real = [_real(path) for path in of]
        on = (text for at, text in lost.items() for path in real if path.is_relative_to(at))
        return next(on, "")

    def check(self) -> None:
        """Check all directories now, with a few calls of the system."""
        with self._lock:
            try:
                listed = self._mountinfo.read_text(errors="surrogateescape")
            except OSError:  # such as no file left that could be opened
                return
            faults = {one.directory: one for one in self._faults(listed)}
            before = self._lost
            self._lost = {at: one.text for at, one in faults.items() if one.is_lost}
            self._report(faults)
            is_news = self._lost.keys() != before.keys()
        self._metrics.lost_directories.labels().set(len(self._lost))
        if is_news:
            self._listeners.call()

    def _report(self, faults: Mapping[Path, _Fault]) -> None:
        event = "host directory lost"
        for at, one in faults.items():
            advice = _ADVICE if one.is_lost else f"{_ADVICE}, but the kubelet still uses this one"
            fields: dict[str, Any] = {"directory": str(at), "problem": one.text, "advice": advice}
            if self._problems.say(str(at), event, **fields):
                self._metrics.events.add(event, detail=one.text)
        for at in self._reported - faults.keys():
            self._problems.over(str(at))
            log.info("host directory back", extra={"directory": str(at)})
        self._reported = set(faults)

    def _faults(self, listed: str) -> Iterator[_Fault]:
        connected = self._is_connected()
        if connected is None:
            connected = self._covered.are_answering()
        for directory in filter(_is_unlinked, self._own):
            text = f"{directory} has been deleted under its mount"
            yield _Fault(_real(directory), text)
        for socket in self._covered.check(connected=connected):
            directory = socket.parent
            text = f"{directory} is hidden on the host by another mount: the kubelet asks how this"
            yield _Fault(_real(directory), f"{text} process is, and does not listen on {socket}")
        contact = _Contact(tuple(map(file_identity, self._sockets)), self._registrations)
        before, self._known = self._known, {}
        for mount in self._relevant(listed):
            key = mount.number, mount.point
            now = _status(mount) or before.get(key)
            if now is None:
                continue
            first = before.get(key, now)
            # The number of a mount that is gone is used again.
            self._known[key] = first = first if first.inode == now.inode else now
            if mount.root == first.root:
                self._contacts[mount.point] = contact
            elif mount.is_deleted:
                yield _Fault(mount.point, f"{mount.point} has been deleted under its mount")
            else:
                is_left = not connected or self._is_left(mount, contact)
                yield self._renamed(mount, first.root, is_left=is_left)

    def _renamed(self, mount: Mount, before: str, *, is_left: bool) -> _Fault:
        at = mount.point
        text = f"{at} has been renamed under its mount, from {before} to {mount.root}"
        return _Fault(at, text, is_lost=is_left or not _serves(mount, self._own))

    def _is_left(self, mount: Mount, now: _Contact) -> bool:
        """Return whether another kubelet does not find the driver on the renamed ``mount``."""
        then = self._contacts[mount.point]
        if then.kubelet == now.kubelet or not then.registrations:
            return False
        if _serves(mount, [self._driver_dir]):
            return True  # it registers the driver although it cannot reach it there
        return _serves(mount, [self._registry_dir]) and then.registrations == now.registrations

    def _relevant(self, listed: str) -> Iterator[Mount]:
        found = list(mounts(listed))
        in_pod = any(_OF_POD.search(one.root) and not _is_of_pod(one.point) for one in found)
        used = [_real(one) for one in self._used]
        from_host: set[int] = set()
        """Mounts in which others come and go as on the host."""
        for one in found:
            is_hosts = one.parent in from_host
            if is_hosts or (one.is_follower and one.root != "/"):
                from_host.add(one.number)
            # A new container would have the host's own mounts as they are.
            if not is_hosts and _can_be_lost(one) and (in_pod or any(map(one.serves, used))):
                yield one


def _can_be_lost(mount: Mount) -> bool:
    # A whole file system has no other name, and in namespaces it is not even a path.
    is_part = mount.root.startswith("/") and mount.root != "/"
    of_pod = _OF_POD.search(mount.root) or _is_of_pod(mount.point)
    return is_part and not of_pod and not mount.kind.startswith(_SKIPPED)


def _is_of_pod(path: Path) -> bool:
    return bool(_OF_POD.search(str(path)))


def _serves(mount: Mount, directories: Iterable[Path]) -> bool:
    return any(mount.serves(_real(one)) for one in directories)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_unlinked(path: Path) -> bool:
    try:
        return not path.stat().st_nlink
    except OSError:  # absent or inaccessible, which a restart would not repair
        return False


def _status(mount: Mount) -> _Known | None:
    """Return how ``mount`` is now; None if it is not a directory, or cannot be accessed."""
    try:
        status = mount.point.stat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    return _Known(mount.root, (status.st_dev, status.st_ino))


_CERTAIN: Final = 30.0
"""Seconds after the first refusal from which on no question can be that of a kubelet that has ended
meanwhile."""


class CoveredSockets:
    """Finds out which of ``sockets`` other mounts hide. For one thread, but for ``probed``.

    A container that keeps the hidden directory sees in it a socket on which nobody listens. That is
    the same while a kubelet is down. But one that asks how this process is would listen by then.
    """

    def __init__(self, sockets: Sequence[Path], clock: Clock) -> None:
        self._sockets = sockets
        self._clock = clock
        self._used: set[Path] = set()
        """Those on which the kubelet has listened. Of others it is unknown whose they are."""
        self._refusing: dict[Path, tuple[Identity, float]] = {}
        """Since when nobody listens."""
        self._probed_at = -math.inf

    def probed(self) -> None:
        """Note that the kubelet has just asked how this process is."""
        self._probed_at = self._clock.now()

    def are_answering(self) -> bool:
        """Return whether a kubelet listens wherever one has listened."""
        return all(_answers(one) is not False for one in self._used)

    def check(self, *, connected: bool) -> Collection[Path]:
        """Return those that are hidden now. ``connected`` says whether the kubelet is there."""
        if connected:
            self._refusing = {}
            unknown = [one for one in self._sockets if one not in self._used]
            self._used |= {one for one in unknown if _answers(one) is True}
            return ()
        now = self._clock.now()
        refusing: dict[Path, tuple[Identity, float]] = {}
        for socket in (one for one in self._sockets if one in self._used):
            identity = file_identity(socket)
            before, since = self._refusing.get(socket, (identity, now))
            if identity is not None and _answers(socket) is False:
                # Each kubelet makes its own, so another file is another kubelet's.
                refusing[socket] = identity, since if before == identity else now
        self._refusing = refusing
        return [one for one, (_, since) in refusing.items() if self._probed_at >= since + _CERTAIN]


def _answers(socket: Path) -> bool | None:
    """Return whether anybody listens on ``socket``; None if it cannot be tried now."""
    try:
        return answers(socket)
    except OSError:  # such as no file left that could be opened
        return None
