"""What ``--once`` prints of DRA: the ResourceSlices that would be published, or classes."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from deviceplugin._app.dra_settings import driver_name
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._config import parameters
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.found import Groups
from deviceplugin._dra.claims.parameters import head_of
from deviceplugin._dra.slices.attributes import Describer, device_classes
from deviceplugin._dra.slices.plan import plan
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform import hooks
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin


def writer(
    plugins: Sequence[Plugin], settings: Settings, *, of_classes: bool
) -> Callable[[Groups], str]:
    """Return what writes YAML, in the form of JSON; ConfigError if the driver needs a name.

    Comments show what claims may say. Nobody is asked, so nothing is held by a pod.
    """
    driver = driver_name(settings, plugins)
    if of_classes:
        return lambda groups: _documents(device_classes(driver, groups))
    site = Site(driver, settings.node_name or "this-node")
    kinds = [one.parameters for one in plugins if one.parameters is not None]

    def slices(groups: Groups) -> str:
        catalogue = PoolCatalogue(
            Describer(driver, lists=settings.list_attributes), site.node, settings.on_unhealthy
        )
        offers: Offers = {
            name: {key: _state(group[key]) for key in sorted(group, key=natural_key)}
            for name, group in sorted(groups.items())
        }
        writes = plan([], catalogue.pools(offers), site)
        sys.stderr.writelines(f"cut: {text}\n" for text in catalogue.problems())
        comments = [_comment(kind, driver) for kind in dict.fromkeys(kinds)]
        return _documents(write.body for write in writes) + "".join(comments)

    return slices


def _documents(found: Iterable[Mapping[str, Any] | None]) -> str:
    return "".join(f"---\n{json.dumps(one, indent=2)}\n" for one in found)


def _comment(kind: type, driver: str) -> str:
    given = {**head_of(kind, driver), **hooks.call(parameters.write, hooks.call(kind))}
    config = [{"opaque": {"driver": driver, "parameters": given}}]
    text = f"A claim may have this as spec.devices.config:\n{json.dumps(config, indent=2)}"
    return "".join(f"# {line}\n" for line in text.splitlines())


def _state(device: Device) -> OfferState:
    taint = "" if device.health else UNHEALTHY
    return OfferState(device, offered=True, taint=taint, reason=device.health.reason)
