"""Noticing that the facts about the node have changed since the configuration was chosen."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Reloading:
    """Has the settings read again when the node has changed since this object was made.

    ``facts`` returns the facts that the choice depends on, such as the models of GPUs, which are
    unknown until the driver is loaded. ``reload`` is called once for each change. The framework
    itself notices changes of the file.
    """

    def __init__(self, facts: Callable[[], object], reload: Callable[[], None]) -> None:
        self._facts = facts
        self._reload = reload
        self._seen = facts()

    def check(self) -> bool:
        """Check the node, and return whether the settings are read again."""
        seen = self._facts()
        if seen == self._seen:
            return False
        self._seen = seen
        log.info("node changed, reloading the configuration", extra={"node": str(seen)})
        self._reload()
        return True
