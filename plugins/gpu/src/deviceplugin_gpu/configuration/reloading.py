"""Noticing that the configuration file is another one, such as after an edit of a ConfigMap."""

import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)


class Reloading:
    """Has the settings read again when ``path`` has changed since this object was made.

    ``reload`` is called once for each change, even if what the file says then is not valid.
    """

    def __init__(self, path: Path, reload: Callable[[], None]) -> None:
        self.path = path
        self._reload = reload
        self._signature = self._look()

    def check(self) -> None:
        """Look at the file. One that is not there now is waited for."""
        signature = self._look()
        if signature in {None, self._signature}:
            return
        self._signature = signature
        log.info("configuration has changed", extra={"file": str(self.path)})
        self._reload()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
