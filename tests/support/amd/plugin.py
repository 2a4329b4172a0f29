"""Words for tests of the AMD GPU plugin."""

from collections.abc import Callable

from amd.tree import AmdTree
from deviceplugin_amd import AmdPlugin

Make = Callable[..., AmdPlugin]
"""Makes a plugin for a tree, with settings by their names."""
Build = Callable[..., AmdTree]
"""Makes the tree of a machine."""


def healths(plugin: AmdPlugin) -> dict[str, str]:
    """Look; return why each device is unhealthy, by id, with an empty text for one that is not."""
    return {device.id: device.health.reason for device in plugin.discover()}


def unhealthy(plugin: AmdPlugin) -> dict[str, str]:
    """Look; return why devices are unhealthy, of those that are."""
    return {one: reason for one, reason in healths(plugin).items() if reason}
