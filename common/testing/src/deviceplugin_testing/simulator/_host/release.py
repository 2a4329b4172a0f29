"""Releases of Kubernetes, and the kubelet's known defects."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

NEWEST: Final = "1.36"
"""The release whose real device manager the simulation is compared with."""
_OLDEST: Final = 26
RELEASES: Final = tuple(f"1.{minor}" for minor in range(_OLDEST, int(NEWEST[2:]) + 1))
"""The releases whose kubelet sources have been compared, the oldest first."""

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
    "has_dra_gate": 32,
    "enables_dra": 34,
    "calls_dra_v1": 34,
    "lists_claims": 34,
    "watches_dra_health": 36,
}
"""Fields of ``Release`` to the minor release from which on they are true."""
UNTIL: Final[Mapping[str, int]] = {"readmits_ended": 28, "annotates_cdi_names": 32}
"""Fields of ``Release`` to the minor release from which on they are no longer true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The behaviour of a release's kubelet with its default feature gates."""

    name: str

    limits_rate: bool
    """The pod resources API is limited to 100 calls a second."""

    knows_get: bool
    """The pod resources API has Get."""

    answers_get: bool
    """Get is enabled. Otherwise it returns an error."""

    lists_active_only: bool
    """List has active pods only. Otherwise it has all that the kubelet knows, even ended ones."""

    lists_sidecars: bool
    """List and Get include sidecars."""

    admits_sidecars: bool
    """Pods may have sidecars."""

    knows_sidecars: bool
    """The kubelet distinguishes sidecars from ordinary init containers."""

    readmits_ended: bool
    """A restart also admits pods again that have ended, which may make them fail."""

    passes_cdi_names: bool
    """The kubelet passes CDI names in Allocate's answer to the runtime."""

    annotates_cdi_names: bool
    """It passes them as an annotation too."""

    deletes_sockets_only: bool
    """A start deletes only sockets in the plugin directory. Otherwise it keeps only directories."""

    missing_device_crashes: bool
    """The kubelet crashes when it looks up a device that is no longer listed."""

    cancels_registration: bool
    """If the plugin cancels Register, the kubelet undoes it. Otherwise it continues."""

    retries_refused_plugin: bool
    """The plugin watcher retries a plugin whose registration failed."""

    hints_need_devices: bool
    """Topology hints combine only NUMA nodes that have devices."""

    leaves_claimed: bool
    """The device manager ignores a resource that comes from a resource claim."""

    shows_device_health: bool
    """A pod's status has the health of its devices."""

    has_dra_gate: bool
    """The gate DynamicResourceAllocation lets pods have resource claims of resource.k8s.io/v1beta1
    or later. The alpha versions before are not simulated."""

    enables_dra: bool
    """Pods may have resource claims by default."""

    calls_dra_v1: bool
    """The kubelet calls v1 of the drivers' API. Otherwise it knows v1beta1 only."""

    lists_claims: bool
    """The pod resources API has the devices of claims."""

    watches_dra_health: bool
    """The kubelet reads the health of devices from DRA drivers."""

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the release ``name``, such as ``1.28``; raise ``ValueError`` if it is unknown."""
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
