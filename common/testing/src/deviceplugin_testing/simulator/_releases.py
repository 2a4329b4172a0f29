"""Which releases of Kubernetes are simulated."""

from typing import Final

COMPARED: Final = "1.36"
"""The default: the newest release whose real kubelet and API server the simulation equals."""
NEWEST: Final = "1.37"
"""The newest release whose kubelet is simulated."""
_OLDEST: Final = 26
RELEASES: Final = tuple(f"1.{minor}" for minor in range(_OLDEST, int(NEWEST[2:]) + 1))
"""All releases whose kubelet is simulated, the oldest first."""
