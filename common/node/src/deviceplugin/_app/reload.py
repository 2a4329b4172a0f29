"""Reloading: reading the settings again and creating new plugins, without a new registration.

It also notices that files have changed, by an edit or a new version of a ConfigMap.
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deviceplugin._config.loading import key
from deviceplugin._config.settings import Settings
from deviceplugin._platform.mounts import MOUNTINFO, fixed
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import DevicePluginError
from deviceplugin.plugin import Plugin

if TYPE_CHECKING:
    from deviceplugin._app.host import Host

log = logging.getLogger(__name__)


_CHUNK: Final = 64 * 1024
_OWN_WAY: Final = {"protocol", "node_choice"}
"""Settings of the framework that a reload applies, or that are only shown."""


def reload(
    host: "Host",
    before: Settings,
    load: Callable[[], Settings],
    make: Callable[[Settings], list[Plugin]],
) -> Settings | None:
    """Load the settings again, make new plugins from them, and give these to ``host``.

    Returns the settings; None if loading or making fails, which is logged: the old plugins
    continue. It also logs which settings differ from ``before`` and need a restart.
    """
    from deviceplugin._platform import hooks  # --help and --once do not need it

    try:
        settings = hooks.call(load)  # the settings class can be the plugin's code
        plugins = hooks.call(make, settings)
        host.check_protocol(settings.protocol)
        host.replace(plugins)
        host.offer_by(settings.protocol)
    except DevicePluginError as error:
        problem = {"error": str(error)}
        log.error("invalid configuration ignored", extra=problem)  # noqa: TRY400 - it is enough
        return None
    changed = [
        key(field)
        for field in fields(Settings)
        if field.name not in _OWN_WAY
        and getattr(settings, field.name) != getattr(before, field.name)
    ]
    if changed:
        log.warning("restart required to apply settings", extra={"settings": ", ".join(changed)})
    log.info("configuration reloaded")
    return settings


SETTLE: Final = 0.5
"""Seconds that a file must stay unchanged before it is read, because somebody may be writing it."""
_MOST_ROUNDS: Final = 20
"""Checks after which a file is read even if it keeps changing."""
_CONFIG_MAP: Final = "..data"
"""The link that the kubelet replaces when a mounted ConfigMap changes."""

Contents = Mapping[Path, int | None]
"""The digest of each file; None for a file that is absent or unreadable."""

Watch = Callable[[Path, Callable[[str | None], None]], object]
"""Calls the function after each change of the path."""


class FileChanges:
    """Notices when the content of files differs from what was recorded, and has settled.

    Only the content counts, not a rewrite or a link. A file may also appear later.
    """

    def __init__(self, waiter: Waiter | None = None, mountinfo: Path = MOUNTINFO) -> None:
        self._mountinfo = mountinfo
        self._waiter = waiter or Waiter()
        self._lock = threading.Lock()
        self._noted: dict[Path, int | None] = {}
        self._watched: set[Path] = set()
        self._watch: Watch | None = None

    def note(self, paths: Iterable[Path]) -> None:
        """Record the content of ``paths`` and all files so far. Call it before reading them."""
        with self._lock:
            self._noted = _contents({**dict.fromkeys(paths), **self._noted})
        self._watch_all()

    def add(self, paths: Iterable[Path]) -> None:
        """Record the content of further files; files that are recorded already are skipped."""
        with self._lock:
            self._noted = {**_contents(set(paths) - self._noted.keys()), **self._noted}
        self._watch_all()

    def fixed(self, more: Iterable[Path]) -> list[str]:
        """Return why no change of some files is seen, also of ``more``; a message for each."""
        with self._lock:
            paths = [*self._noted, *more]
        return list(fixed(paths, self._mountinfo))

    def start(self, watch: Watch, ask: Callable[[], None]) -> None:
        """Call ``ask`` after changes, in a new thread, until ``stop``."""
        self._watch = watch
        self._watch_all()
        threading.Thread(target=self._run, args=(ask,), name="configuration", daemon=True).start()

    def stop(self) -> None:
        self._waiter.end()

    def _watch_all(self) -> None:
        for path in self._noted.keys() - self._watched if self._watch else ():
            assert self._watch
            self._watched.add(path)
            self._watch(path, lambda _name: self._waiter.poke())
            # A link in the directory, on the way to the file, may be replaced.
            self._watch(path.parent, partial(self._poke_for, {None, path.name, _CONFIG_MAP}))
        self._waiter.poke()  # a file may have changed before it was watched

    def _poke_for(self, names: set[str | None], name: str | None) -> None:
        if name in names:
            self._waiter.poke()

    def _run(self, ask: Callable[[], None]) -> None:
        known = self.fixed(())
        while not self._waiter.is_over():
            self._waiter.until_poked()
            before, known = known, self.fixed(())
            is_news = self._is_news(self._current()) and self._is_news(self._settled())
            if is_news or not {*known} <= {*before}:  # what is replaced is said at a reload
                ask()

    def _current(self) -> Contents:
        with self._lock:
            paths = list(self._noted)
        return _contents(paths)

    def _settled(self) -> Contents:
        """Return the contents once they have not changed for a while."""
        found = self._current()
        for _ in range(_MOST_ROUNDS):
            self._waiter.pause(SETTLE)
            before, found = found, self._current()
            if found == before:
                break
        return found

    def _is_news(self, found: Contents) -> bool:
        if self._waiter.is_over():
            return False
        with self._lock:
            return any(one is not None and one != self._noted[at] for at, one in found.items())


def _contents(paths: Iterable[Path]) -> dict[Path, int | None]:
    found: dict[Path, int | None] = dict.fromkeys(paths)
    for path in found:
        with suppress(OSError):
            found[path] = _digest(path)
    return found


def _digest(path: Path) -> int:
    """Return a digest of a file, or of the files in a directory, such as a mounted ConfigMap.

    It is another one in another process.
    """
    if not path.is_dir():
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")  # reading a pipe would consume it
        found = 0
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found = hash((found, chunk))  # 64 bits, by a secret key; others need OpenSSL
        return found
    files = sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    return hash(tuple((one.name, _digest(one)) for one in files))
