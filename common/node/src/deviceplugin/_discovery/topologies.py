"""Advertising topology for all devices of a resource or for none.

The kubelet rejects pods that get a mixture.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace

from deviceplugin.kit import numa
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device

log = logging.getLogger(__name__)


class Topologies:
    """Removes the topology from all devices of a resource if a healthy one has none."""

    def __init__(self) -> None:
        self._mixtures = Problems(log)
        self._bare: dict[str, dict[str, tuple[Device, Device]]] = {}
        """Each device as it was given, and without topology; by id, by resource."""

    def even(self, resource: str, devices: Iterable[Device]) -> list[Device]:
        """Return ``devices`` as they can be published. The reason for a change is logged once.

        The same device gives the same object each time, so that publishing it again costs nothing.
        """
        given = list(devices)
        reason = numa.mixture(given)
        if not reason:
            self.forget(resource)
            return given
        self._mixtures.say(
            resource,
            "topology not advertised",
            resource=resource,
            reason=reason,
            advice="the kubelet rejects pods over a mixture: give a NUMA node to all or to none",
        )
        known = self._bare.get(resource, {})
        pairs: dict[str, tuple[Device, Device]] = {}
        for was in given:
            kept = known.get(was.id)
            if kept is None or kept[0] is not was:
                kept = was, replace(was, topology=None)
            pairs[was.id] = kept
        self._bare[resource] = pairs
        return [bare for _, bare in pairs.values()]

    def forget(self, resource: str) -> None:
        """Forget a resource, so that its next mixture is logged again."""
        self._mixtures.over(resource)
        self._bare.pop(resource, None)
