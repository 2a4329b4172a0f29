"""The labels of this node at a start: another container may be about to write their file."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.loading import before_file
from deviceplugin._config.settings import Settings
from deviceplugin._platform.waiting import Waiter

_EVERY: Final = 0.1
"""Seconds between looks for the file."""


def missing(settings: type[Settings], flags: Mapping[str, Any]) -> Path | None:
    """Wait a while for the file, and return its path if it does not come."""
    setting = partial(before_file, settings, flags=flags)
    path: Path | None = setting("node_labels_file")
    if path is None:
        return None
    seconds = setting("node_labels_wait").total_seconds()
    return None if Waiter().until(partial(_exists, path), seconds, every=_EVERY) else path


def _exists(path: Path) -> bool:
    with suppress(OSError):
        return path.exists()
    return True  # reading it reports why not
