"""What the cluster can keep of slices: features that an older one drops without a word."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin._config.slices import SHARES, has_shares
from deviceplugin._dra.naming import counted
from deviceplugin._dra.slices.attributes import NUMA_NODE, lists_in
from deviceplugin._dra.slices.pools import Offers, Pool, PoolCatalogue, Site
from deviceplugin._dra.slices.store import Object, SliceStore
from deviceplugin._platform.api_errors import ApiServerError, InvalidError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_UNDECIDED: Final = (400, 422)
"""An admission webhook or policy refuses to try out what is not really created, or the API server
refuses what is left of it."""
_PROBE: Final = "deviceplugin-probe"


@dataclass(frozen=True, eq=False)
class _Feature:
    """Something in slices that an API server without its feature gate drops, and says nothing."""

    advice: str
    is_in: Callable[[Mapping[str, Any]], object]
    """Returns something if a device in a slice uses it."""
    example: Mapping[str, Any]
    """What a device with it has."""
    if_refused: bool
    """Whether it is used after a refusal of the example. An admission webhook or policy may have
    refused it; but an attribute whose list was dropped is refused for having no value."""
    of_parts: bool = False
    """Whether only pools with counters have it."""

    def is_used(self, pools: Iterable[Pool]) -> bool:
        return any(
            self.is_in(one.body)
            for pool in pools
            if pool.counters or not self.of_parts
            for one in pool.entries
        )


def _has_groups(device: Mapping[str, Any]) -> bool:
    return any("compatibilityGroups" in one for one in device.get("consumesCounters", ()))


_TAKEN: Final = {"counterSet": "example", "counters": {"example": {"value": "1"}}}
_SHARES: Final = _Feature(
    "enable the feature gate DRAConsumableCapacity, as Kubernetes 1.36 does",
    has_shares,
    {"allowMultipleAllocations": True, "capacity": {SHARES: counted(2)}},
    if_refused=True,
)
_LISTS: Final = _Feature(
    "enable the feature gate DRAListTypeAttributes in API server and scheduler, or remove the "
    "setting list-attributes",
    lists_in,
    {"attributes": {NUMA_NODE: {"ints": [0, 1]}}},
    if_refused=False,
)
_COUNTERS: Final = _Feature(
    "enable the feature gate DRAPartitionableDevices in API server and scheduler, as Kubernetes "
    "1.36 does: until then no part is made for a claim",
    lambda device: device.get("consumesCounters"),
    {"consumesCounters": [_TAKEN]},
    if_refused=False,
    of_parts=True,
)
_GROUPS: Final = _Feature(
    "enable the feature gate DRADeviceCompatibilityGroups in API server and scheduler, as "
    "Kubernetes 1.37 can: until then no part that has groups is made for a claim",
    _has_groups,
    {"consumesCounters": [{**_TAKEN, "compatibilityGroups": ["example"]}]},
    if_refused=False,
    of_parts=True,
)
_FEATURES: Final = (_SHARES, _LISTS, _COUNTERS, _GROUPS)


class ClusterFeatures:
    """Has each share be a device of its own where the cluster does not count shares, and so on.

    The API server is asked once, before the first device that uses a feature is written, and each
    answer to a write is checked. A feature that was dropped is not used until the next start.
    """

    def __init__(self, store: SliceStore) -> None:
        self._store = store
        self._asked: set[_Feature] = set()
        self._missing: set[_Feature] = set()
        self._problems = Problems(log)

    def pools(self, catalogue: PoolCatalogue, offers: Offers, site: Site) -> list[Pool]:
        """Return the pools of ``offers`` as this cluster can have them, or ApiServerError."""
        pools = self._pools(catalogue, offers)
        for feature in _FEATURES:
            if feature not in self._asked and feature.is_used(pools):
                self._ask(feature, site)
                pools = self._pools(catalogue, offers)
        return pools

    def _pools(self, catalogue: PoolCatalogue, offers: Offers) -> list[Pool]:
        there = [feature not in self._missing for feature in _FEATURES]
        return catalogue.pools(
            offers, counted=there[0], lists=there[1], parts=there[2], groups=there[3]
        )

    def answered(self, sent: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        """Compare a slice that was written with the answer."""
        found = {one["name"]: one for one in kept["spec"].get("devices") or ()}
        for feature in _FEATURES:
            used = [one["name"] for one in sent["spec"].get("devices", ()) if feature.is_in(one)]
            if any(not feature.is_in(found.get(name, {})) for name in used):
                self._is_missing(feature)
        if "sharedCounters" in sent["spec"] and not kept["spec"].get("sharedCounters"):
            self._is_missing(_COUNTERS)

    def refused(self, sent: Mapping[str, Any], error: InvalidError) -> bool:
        """Return whether a slice was refused for its lists: the feature was switched off."""
        names = {name for one in sent["spec"].get("devices", ()) for name in lists_in(one)}
        ends = tuple(f".attributes[{name}]" for name in names)
        is_it = any(field.endswith(ends) for field, _ in error.causes)
        if is_it:
            self._is_missing(_LISTS)
        return is_it

    def _is_missing(self, feature: _Feature) -> None:
        self._missing.add(feature)
        event = "lists not kept by the cluster"
        if feature is _SHARES:
            event = "shares not counted by the cluster"
        elif feature is _COUNTERS:
            event = "parts not counted by the cluster"
        elif feature is _GROUPS:
            event = "groups of parts not kept by the cluster"
        self._problems.say(feature.advice, event, advice=feature.advice)

    def _ask(self, feature: _Feature, site: Site) -> None:
        probe = _probe(site, feature.example)
        try:
            self.answered(probe, self._store.try_out(probe))
        except ApiServerError as error:
            if error.status not in _UNDECIDED:
                raise
            if not feature.if_refused:
                self._is_missing(feature)
        self._asked.add(feature)


def _probe(site: Site, example: Mapping[str, Any]) -> Object:
    pool = {"name": site.node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "example", **example}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"{_PROBE}-"},
        "spec": {"driver": site.driver, "nodeName": site.node, "pool": pool, "devices": devices},
    }
