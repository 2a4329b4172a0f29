"""The thread of a watch."""

import threading
from collections.abc import Callable

from typing_extensions import override

from deviceplugin._dra.slices.store import Watching


class WatchThread(threading.Thread):
    """Runs a watch, and calls ``ended`` when that ends."""

    def __init__(self, watch: Watching, ended: Callable[[], None]) -> None:
        super().__init__(name="slices-watch", daemon=True)
        self._watch = watch
        self._ended = ended
        self.error: Exception | None = None

    @override
    def run(self) -> None:
        try:
            self._watch.run()
        except Exception as error:  # the top of a thread
            self.error = error
        finally:
            self._ended()

    def end(self) -> None:
        """Stop the watch and wait for it."""
        self._watch.stop()
        self.join()
