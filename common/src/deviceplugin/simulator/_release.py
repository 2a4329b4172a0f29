"""What the kubelets of earlier releases do differently: see common/docs/kubelet-releases.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

NEWEST: Final = "1.36"
"""The release that the simulation is compared with, on the kubelet's own device manager."""
_OLDEST: Final = 26
RELEASES: Final = tuple(f"1.{minor}" for minor in range(_OLDEST, int(NEWEST[2:]) + 1))
"""The releases whose kubelet's sources have been compared, oldest first."""

SINCE: Final[Mapping[str, int]] = {
    "limits_rate": 27,
    "knows_get": 27,
    "answers_get": 34,
    "lists_active_only": 34,
    "lists_sidecars": 30,
    "admits_sidecars": 29,
    "knows_sidecars": 28,
    "passes_cdi_names": 29,
    "annotates_cdi_names": 29,
    "deletes_sockets_only": 33,
    "missing_device_crashes": 34,
    "cancels_registration": 35,
    "retries_refused_plugin": 36,
    "hints_need_devices": 36,
    "leaves_claimed": 36,
    "shows_device_health": 36,
}
"""Fields of ``Release`` to the minor release that they are true from."""
UNTIL: Final[Mapping[str, int]] = {"readmits_ended": 28, "annotates_cdi_names": 32}
"""To the one from which they are not true any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Kubernetes, by what its kubelet does with its default feature gates."""

    name: str

    limits_rate: bool
    """The pod resources API answers 100 calls a second."""

    knows_get: bool
    """The pod resources API has Get."""

    answers_get: bool
    """Get is enabled; else it is an error."""

    lists_active_only: bool
    """List has active pods only; else all that the kubelet knows, those that have ended too."""

    lists_sidecars: bool
    """List and Get have sidecars."""

    admits_sidecars: bool
    """Pods may have sidecars."""

    knows_sidecars: bool
    """A sidecar is not taken for an ordinary init container."""

    readmits_ended: bool
    """A restart admits pods again that have ended, which may fail them."""

    passes_cdi_names: bool
    """CDI names in Allocate's answer reach the runtime."""

    annotates_cdi_names: bool
    """They reach it as an annotation too."""

    deletes_sockets_only: bool
    """A start deletes sockets in the plugin directory; else everything but directories."""

    missing_device_crashes: bool
    """The kubelet dies when it looks up a device that is no longer listed."""

    cancels_registration: bool
    """A Register that its plugin gives up is undone; else it goes on without it."""

    retries_refused_plugin: bool
    """The plugin watcher tries a plugin again whose registration failed."""

    hints_need_devices: bool
    """Topology hints combine only NUMA nodes that have devices."""

    leaves_claimed: bool
    """A resource of a resource claim is not the device plugin's."""

    shows_device_health: bool
    """A pod's status has the health of its devices."""

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the release called ``name``, as ``1.28``; ``ValueError`` if it is not known."""
        if name not in RELEASES:
            raise ValueError(
                f"{name!r} is not a known kubelet release: use one of {', '.join(RELEASES)}"
            )
        minor = int(name.partition(".")[2])
        facts = SINCE.keys() | UNTIL.keys()
        return cls(
            name=name,
            **{fact: SINCE.get(fact, 0) <= minor < UNTIL.get(fact, minor + 1) for fact in facts},
        )
