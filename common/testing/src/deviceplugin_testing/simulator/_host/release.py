"""How kubelets of earlier releases differ: see common/docs/supported-versions.md."""

from collections.abc import Mapping
from dataclasses import dataclass
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
