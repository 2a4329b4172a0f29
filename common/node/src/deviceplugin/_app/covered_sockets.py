"""Sockets of the kubelet that another mount hides on the host: ours are not the kubelet's any more.

A container that keeps the hidden directory sees in it a socket on which nobody listens. That is the
same while a kubelet is down. But a kubelet that asks how this process is would listen by then.
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from deviceplugin._platform.clock import Clock
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._platform.unix_sockets import answers

_CERTAIN: Final = 30.0
"""Seconds after the first refusal from which on no question can be that of a kubelet that has ended
meanwhile."""


class CoveredSockets:
    """Finds out which of ``sockets`` are hidden. For one thread at a time, but for ``probed``."""

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
