"""The plugin under test, as a process."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin_testing.conformance._output import last_words
from deviceplugin_testing.conformance._place import fill

_LAST_LINES: Final = 3
_VARIABLES: Final = (
    "plugin_dir",
    "pod_resources_socket",
    "registry_dir",
    "http_address",
)
"""Placeholders that are in the environment too, as ``DP_PLUGIN_DIR`` and so on."""


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
