"""Noticing that the node is another one than the configuration was chosen for."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Reloading:
    """Has the settings read again when the node has changed since this object was made.

    ``look`` returns what the choice depends on, such as the models of GPUs, which are not known
    before the driver is loaded. ``reload`` is called once for each change. Changes of the file are
    the framework's business.
    """

    def __init__(self, look: Callable[[], object], reload: Callable[[], None]) -> None:
        self._look = look
        self._reload = reload
        self._seen = look()

    def check(self) -> bool:
        """Look at the node, and return whether the settings are read again."""
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        log.info("node changed, reloading the configuration", extra={"node": str(seen)})
        self._reload()
        return True
