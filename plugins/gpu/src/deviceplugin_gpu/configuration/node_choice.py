"""The models of a node's GPUs, by which one configuration for different nodes is chosen from."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

LABEL: Final = "nvidia.com/device-plugin.config"
"""The label of NVIDIA's plugin, which names an entry or a file."""
_MODEL: Final = "Model:"
log = logging.getLogger(__name__)


def models(proc: Path) -> tuple[str, ...]:
    """Return the models, each once, in alphabetical order; none before the driver is loaded."""
    found = set()
    for path in proc.glob("driver/nvidia/gpus/*/information"):
        with suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()
            found |= {line.removeprefix(_MODEL).strip() for line in lines if line[:6] == _MODEL}
    return tuple(sorted(found - {""}))


class Reloading:
    """Calls ``reload`` when the models, by which the settings are chosen, have changed.

    They are unknown until the driver is loaded. The framework itself notices changes of the file
    and of labels.
    """

    def __init__(self, read: Callable[[], tuple[str, ...]], reload: Callable[[], None]) -> None:
        self._read = read
        self._reload = reload
        self._seen = read()

    def check(self) -> bool:
        """Check the node, and return whether the settings are read again."""
        seen = self._read()
        if seen == self._seen:
            return False
        self._seen = seen
        event = "node changed, reloading the configuration"
        log.info(event, extra={"models": ", ".join(seen)})
        self._reload()
        return True
