"""Words for tests of the generic plugin."""

from collections.abc import Callable

import deviceplugin as dp
from deviceplugin_generic import GenericPlugin

Make = Callable[..., GenericPlugin]


def found(plugin: dp.Plugin) -> dict[str, dp.Device]:
    """Return the devices that a plugin finds, by id."""
    return {device.id: device for device in plugin.discover()}
