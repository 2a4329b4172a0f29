"""The kubelet's known defects, and which of them are simulated."""

from dataclasses import dataclass, replace
from typing import Self

from deviceplugin_testing.simulator._host.release import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Defects of the kubelet of Kubernetes 1.36. Each can be switched off."""

    stale_stream_disconnects_successor: bool
    """The end of a replaced plugin's stream disconnects the plugin that replaced it."""

    replaced_plugin_still_lists: bool
    """Lists of a replaced plugin are applied while its stream is open."""

    failed_registration_orphans: bool
    """After a failed registration, the kubelet does not notice that the earlier plugin dies."""

    failed_allocation_leaks: bool
    """Devices stay in use after an Allocate answer without containers, or a failed preference."""

    collection_forgets_in_flight: bool
    """Garbage collection during an Allocate makes its devices look free permanently."""

    missing_device_crashes: bool
    """The kubelet dies when it looks up a device that is no longer listed."""

    health_owner_ignores_resource: bool
    """If two resources have equal device ids, a change of health can be reported to the wrong pod.
    """

    claimed_resource_needs_pre_start: bool
    """A container whose resource comes from a claim cannot start while a plugin of that resource
    requires PreStartContainer, or did in the last 5 minutes."""

    unprepare_ignores_users: bool
    """A claim that one pod uses is unprepared at the end of another one that only refers to it."""

    @classmethod
    def v1_36(cls) -> Self:
        """Return the behaviour of Kubernetes 1.36.2: all defects."""
        return cls._all(present=True)

    @classmethod
    def of(cls, release: Release) -> Self:
        """Return the behaviour of a release: all defects that are in its code."""
        return replace(cls.v1_36(), missing_device_crashes=release.missing_device_crashes)

    @classmethod
    def fixed(cls) -> Self:
        """Return the ideal behaviour: no defects.

        Newer kubelets fix some of the defects; none fixes all.
        """
        return cls._all(present=False)

    @classmethod
    def _all(cls, *, present: bool) -> Self:
        return cls(**dict.fromkeys(cls.__slots__, present))
