"""Releases of Kubernetes, and the kubelet's known defects."""

from dataclasses import dataclass, field, fields
from typing import Any, Self

from deviceplugin_testing.simulator._releases import RELEASES


def _true(since: int = 0, until: int = 1000) -> Any:
    """Return a field that is true from one minor release on, until another."""
    return field(metadata={"minors": range(since, until)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The behaviour of a release's kubelet with its default feature gates."""

    name: str
    limits_rate: bool = _true(since=27)
    """The pod resources API is limited to 100 calls a second."""
    knows_get: bool = _true(since=27)
    """The pod resources API has Get."""
    answers_get: bool = _true(since=34)
    """Get is enabled. Otherwise it returns an error."""
    lists_active_only: bool = _true(since=34)
    """List has active pods only. Otherwise it has all that the kubelet knows, even ended ones."""
    lists_sidecars: bool = _true(since=30)
    """List and Get include sidecars."""
    admits_sidecars: bool = _true(since=29)
    """Pods may have sidecars."""
    knows_sidecars: bool = _true(since=28)
    """The kubelet distinguishes sidecars from ordinary init containers."""
    readmits_ended: bool = _true(until=28)
    """A restart also admits pods again that have ended, which may make them fail."""
    passes_cdi_names: bool = _true(since=29)
    """The kubelet passes CDI names in Allocate's answer to the runtime."""
    annotates_cdi_names: bool = _true(since=29, until=32)
    """It passes them as an annotation too."""
    deletes_sockets_only: bool = _true(since=33)
    """A start deletes only sockets in the plugin directory. Otherwise it keeps only directories."""
    cancels_registration: bool = _true(since=35)
    """If the plugin cancels Register, the kubelet undoes it. Otherwise it continues."""
    retries_refused_plugin: bool = _true(since=36)
    """The plugin watcher retries a plugin whose registration failed."""
    hints_need_devices: bool = _true(since=36)
    """Topology hints combine only NUMA nodes that have devices."""
    leaves_claimed: bool = _true(since=36)
    """The device manager ignores a resource that comes from a resource claim."""
    shows_device_health: bool = _true(since=36)
    """A pod's status has the health of its devices."""
    has_dra_gate: bool = _true(since=32)
    """The gate DynamicResourceAllocation lets pods have resource claims of resource.k8s.io/v1beta1
    or later. The alpha versions before are not simulated."""
    enables_dra: bool = _true(since=34)
    """Pods may have resource claims by default."""
    calls_dra_v1: bool = _true(since=34)
    """The kubelet calls v1 of the drivers' API. Otherwise it knows v1beta1 only."""
    lists_claims: bool = _true(since=34)
    """The pod resources API has the devices of claims."""
    watches_dra_health: bool = _true(since=36)
    """The kubelet reads the health of devices from DRA drivers."""
    watches_advertised_health: bool = _true(since=37)
    """It reads only what a driver registered, v1 rather than v1alpha1. Otherwise v1alpha1 of all.
    """
    tracks_sockets: bool = _true(since=37)
    """Several plugins of a resource can be connected; a socket that is connected is refused."""

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the release ``name``, such as ``1.28``; raise ``ValueError`` if it is unknown."""
        if name not in RELEASES:
            raise ValueError(
                f"{name!r} is not a known kubelet release: use one of {', '.join(RELEASES)}"
            )
        return cls(name=name, **_facts(cls, name))


def _facts(cls: type[Any], name: str) -> dict[str, bool]:
    minor = int(name.partition(".")[2])
    return {one.name: minor in one.metadata["minors"] for one in fields(cls) if one.metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Defects of the kubelet. Each can be switched off."""

    stale_stream_disconnects_successor: bool = _true(until=37)
    """The end of a replaced plugin's stream disconnects the plugin that replaced it."""

    replaced_plugin_still_lists: bool = _true()
    """Lists of a replaced plugin are applied while its stream is open."""

    failed_registration_orphans: bool = _true(until=37)
    """After a failed registration, the kubelet does not notice that the earlier plugin dies."""

    failed_allocation_leaks: bool = _true()
    """Devices stay in use after an Allocate answer without containers, or a failed preference."""

    collection_forgets_in_flight: bool = _true()
    """Garbage collection during an Allocate makes its devices look free permanently."""

    missing_device_crashes: bool = _true(since=34)
    """The kubelet dies when it looks up a device that is no longer listed."""

    health_owner_ignores_resource: bool = _true()
    """If two resources have equal device ids, a change of health can be reported to the wrong pod.
    """

    claimed_resource_needs_pre_start: bool = _true()
    """A container whose resource comes from a claim cannot start while a plugin of that resource
    requires PreStartContainer, or did in the last 5 minutes."""

    unprepare_ignores_users: bool = _true(until=37)
    """A claim that one pod uses is unprepared at the end of another one that only refers to it."""

    prepare_joins_unprepare: bool = _true(until=37)
    """A pod that begins to use a claim while it is being unprepared runs with unprepared devices.
    Otherwise its claims fail to be prepared, and are tried again."""

    @classmethod
    def v1_36(cls) -> Self:
        """Return the behaviour of Kubernetes 1.36.2: all defects."""
        return cls._all(present=True)

    @classmethod
    def of(cls, release: Release) -> Self:
        """Return the behaviour of a release: all defects that are in its code."""
        return cls(**_facts(cls, release.name))

    @classmethod
    def fixed(cls) -> Self:
        """Return the ideal behaviour: no defects.

        Newer kubelets fix some of the defects; none fixes all.
        """
        return cls._all(present=False)

    @classmethod
    def _all(cls, *, present: bool) -> Self:
        return cls(**dict.fromkeys(cls.__slots__, present))
