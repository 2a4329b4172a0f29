"""Which of the kubelet's known defects are simulated."""

from dataclasses import dataclass, replace
from typing import Self

from deviceplugin.simulator._release import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Defects of the kubelet of Kubernetes 1.36, each of which may be switched off."""

    stale_stream_disconnects_successor: bool
    """The end of a replaced plugin's stream disconnects the plugin that replaced it."""

    replaced_plugin_still_lists: bool
    """Lists of a replaced plugin are applied as long as its stream is open."""

    failed_registration_orphans: bool
    """After a failed registration nobody notices when the plugin from before dies."""

    failed_allocation_leaks: bool
    """Devices stay in use after an Allocate answer for no container, or a failed preference."""

    collection_forgets_in_flight: bool
    """Garbage collection during an Allocate makes its devices look free for ever."""

    missing_device_crashes: bool
    """The kubelet dies when it looks up a device that is no longer listed."""

    health_owner_ignores_resource: bool
    """Equal device ids of two resources confuse whose pod a change of health concerns."""

    @classmethod
    def v1_36(cls) -> Self:
        """Return the behaviour of Kubernetes 1.36.2: all of them."""
        return cls._all(present=True)

    @classmethod
    def of(cls, release: Release) -> Self:
        """Return the behaviour of another release: all of them, as far as it has the code."""
        return replace(cls.v1_36(), missing_device_crashes=release.missing_device_crashes)

    @classmethod
    def fixed(cls) -> Self:
        """Return the behaviour that one would wish for: none of them.

        Newer kubelets have some of these fixes; none has all.
        """
        return cls._all(present=False)

    @classmethod
    def _all(cls, *, present: bool) -> Self:
        return cls(**dict.fromkeys(cls.__slots__, present))
