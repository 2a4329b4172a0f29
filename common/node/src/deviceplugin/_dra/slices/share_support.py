"""Whether the cluster counts shares of devices, as Kubernetes does by default from 1.36 on."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from deviceplugin._dra.shares import SHARES, counted, has_shares
from deviceplugin._dra.slices.plan import Site
from deviceplugin._dra.slices.pools import Offers, Pool, PoolCatalogue
from deviceplugin._dra.slices.store import Object, SliceStore
from deviceplugin._platform.api_errors import ApiServerError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_UNDECIDED: Final = (400, 422)
"""An admission webhook or policy refuses to try out what is not really created."""
_PROBE: Final = "deviceplugin-probe"


class ShareSupport:
    """Has each share be a device of its own where the cluster does not count shares.

    An API server without the feature gate DRAConsumableCapacity drops what it does not know, and
    says nothing. So it is asked once, before the first shared device is written, and each answer
    to a write is checked. Once it has dropped something, that stays so until the next start.
    """

    def __init__(self, store: SliceStore) -> None:
        self._store = store
        self._counts = True
        self._asked = False
        self._problems = Problems(log)

    def pools(self, catalogue: PoolCatalogue, offers: Offers, site: Site) -> list[Pool]:
        """Return the pools of ``offers`` as this cluster can have them.

        Raises:
            ApiServerError: It cannot be asked now.
        """
        pools = catalogue.pools(offers, counted=self._counts)
        shared = any(entry.shares for pool in pools for entry in pool.entries)
        if self._asked or not shared:
            return pools
        self._ask(site)
        return pools if self._counts else catalogue.pools(offers, counted=False)

    def answered(self, sent: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        """Compare a slice that was written with the answer."""
        found = {one["name"]: one for one in kept["spec"].get("devices") or ()}
        shared = [one["name"] for one in sent["spec"]["devices"] if has_shares(one)]
        if any(not has_shares(found.get(name, {})) for name in shared):
            self._counts = False
            advice = "enable the feature gate DRAConsumableCapacity, as Kubernetes 1.36 does"
            self._problems.say("shares", "shares not counted by the cluster", advice=advice)

    def _ask(self, site: Site) -> None:
        probe = _probe(site)
        try:
            self.answered(probe, self._store.try_out(probe))
        except ApiServerError as error:
            if error.status not in _UNDECIDED:
                raise
        self._asked = True


def _probe(site: Site) -> Object:
    device = {
        "name": "shared",
        "allowMultipleAllocations": True,
        "capacity": {SHARES: counted(2)},
    }
    pool = {"name": site.node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"{_PROBE}-"},
        "spec": {
            "driver": site.driver,
            "nodeName": site.node,
            "pool": pool,
            "devices": [device],
        },
    }
