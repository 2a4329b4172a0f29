"""Asking a plugin what a container gets, for any protocol."""

from collections.abc import Sequence

from deviceplugin._inventory.validation import allocation_problem
from deviceplugin.model import Allocation, Device
from deviceplugin.plugin import Capabilities, Plugin


def hook_of(plugin: Plugin) -> str:
    """Return the name of the hook that `allocation_of` calls."""
    return "allocate" if plugin.parameters is None else "allocate_with"


def allocation_of(
    plugin: Plugin, devices: Sequence[Device], parameters: object = None
) -> Allocation:
    """Return what a container that is given ``devices`` gets, according to ``plugin``.

    ``parameters`` are of the class that the plugin names; None are its defaults.

    Raises:
        TypeError: The plugin returned what no container can get.
        Exception: Whatever the plugin raises.
    """
    allocation: object
    if plugin.parameters is None:
        allocation = plugin.allocate(devices)
    else:
        given = plugin.parameters() if parameters is None else parameters
        allocation = plugin.allocate_with(devices, given)
    if not Capabilities.of(plugin).allocate and isinstance(allocation, Allocation):
        return allocation  # the sum of what was checked at the discovery
    if not isinstance(allocation, Allocation):
        raise TypeError(f"{hook_of(plugin)}() must return an Allocation, not {allocation!r}")
    if problem := allocation_problem(allocation):
        raise TypeError(f"{hook_of(plugin)}() returned what cannot be used: {problem}")
    return allocation
