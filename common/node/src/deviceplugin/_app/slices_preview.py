"""What ``--once`` prints of DRA: the ResourceSlices that the driver would publish."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from deviceplugin._app.dra_settings import driver_name
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._config import parameters
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.found import Groups
from deviceplugin._dra.claims.parameters import head_of
from deviceplugin._dra.slices.attributes import Describer, device_classes
from deviceplugin._dra.slices.plan import plan
from deviceplugin._dra.slices.pools import Offers, OnUnhealthy, PoolCatalogue, Site
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform import hooks
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin


@dataclass(frozen=True)
class SlicesPreview:
    """The slices of a driver on a node. It asks nobody, so nothing is held by a pod."""

    site: Site
    on_unhealthy: OnUnhealthy
    parameters: Sequence[type] = ()
    """The classes of parameters that claims may give."""

    @classmethod
    def of(cls, settings: Settings, plugins: Sequence[Plugin]) -> Self:
        """Return that of the driver for ``plugins``; ConfigError if the driver needs a name."""
        site = Site(driver_name(settings, plugins), settings.node_name or "this-node")
        kinds = [one.parameters for one in plugins if one.parameters is not None]
        return cls(site, settings.on_unhealthy, list(dict.fromkeys(kinds)))

    def as_yaml(self, groups: Groups) -> str:
        """Return the slices as YAML, in the form of JSON; comments show what claims may say."""
        catalogue = PoolCatalogue(Describer(self.site.driver), self.site.node, self.on_unhealthy)
        offers: Offers = {
            name: {key: _state(group[key]) for key in sorted(group, key=natural_key)}
            for name, group in sorted(groups.items())
        }
        writes = plan([], catalogue.pools(offers), self.site)
        sys.stderr.writelines(f"cut: {text}\n" for text in catalogue.problems())
        slices = (f"---\n{json.dumps(write.body, indent=2)}\n" for write in writes)
        return "".join([*slices, *map(self._comment, self.parameters)])

    def classes_as_yaml(self, groups: Groups) -> str:
        """Return a DeviceClass for each resource, as YAML documents in the form of JSON."""
        classes = device_classes(self.site.driver, groups)
        return "".join(f"---\n{json.dumps(one, indent=2)}\n" for one in classes)

    def _comment(self, kind: type) -> str:
        head, default = head_of(kind, self.site.driver), hooks.call(kind)
        given = {**head, **hooks.call(parameters.write, default)}
        config = [{"opaque": {"driver": self.site.driver, "parameters": given}}]
        text = f"A claim may have this as spec.devices.config:\n{json.dumps(config, indent=2)}"
        return "".join(f"# {line}\n" for line in text.splitlines())


def _state(device: Device) -> OfferState:
    taint = "" if device.health else UNHEALTHY
    return OfferState(device, offered=True, taint=taint, reason=device.health.reason)
