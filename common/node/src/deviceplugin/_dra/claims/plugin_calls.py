"""Calling the hooks of plugins for claims, with time limits."""

import threading
from collections.abc import Sequence
from typing import Final

from deviceplugin._inventory.allocating import allocation_of, hook_of
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.hooks import Hooks
from deviceplugin.errors import AllocationError
from deviceplugin.model import Allocation, Device
from deviceplugin.plugin import Capabilities

TIMEOUT: Final = 10.0
"""Most seconds that a hook may take. A pod waits, and other claims of its call wait too."""


def limit(left: float) -> float:
    """Return how many seconds a hook may take if ``left`` are left of the call.

    Raises:
        AllocationError: There is no time left.
    """
    if left <= 0:
        raise AllocationError("no time is left in this call for its hooks")
    return min(left, TIMEOUT)


class PluginCalls:
    """Calls hooks of the plugins of any resources. Thread-safe.

    All methods wait at most ``seconds``, and raise what `Hooks.call` raises.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks: dict[str, Hooks] = {}
        self._closed = False

    def close(self) -> None:
        """Stop waiting for hooks: calls under way and later ones raise at once."""
        with self._lock:
            self._closed = True
            hooks = list(self._hooks.values())
        for each in hooks:
            each.close()

    def pre_start(self, resource: Resource, devices: Sequence[Device], seconds: float) -> None:
        """Prepare ``devices`` for a container, if the plugin wants that."""
        plugin = resource.plugin
        if Capabilities.of(plugin).pre_start:
            self._of(resource).call("pre_start", plugin.pre_start, devices, timeout=seconds)

    def allocate(
        self, resource: Resource, devices: Sequence[Device], parameters: object, seconds: float
    ) -> Allocation:
        """Return what a container that is given ``devices`` gets; see `allocation_of`."""
        plugin, hooks = resource.plugin, self._of(resource)
        arguments = (plugin, devices, parameters)
        return hooks.call(hook_of(plugin), allocation_of, *arguments, timeout=seconds)

    def released(self, resource: Resource, devices: Sequence[Device], seconds: float) -> bool:
        """Clean up ``devices``, if the plugin wants that; return whether it does."""
        plugin = resource.plugin
        if not Capabilities.of(plugin).released:
            return False
        self._of(resource).call("released", plugin.released, devices, timeout=seconds)
        return True

    def _of(self, resource: Resource) -> Hooks:
        with self._lock:
            hooks = self._hooks.setdefault(resource.name, Hooks())
            if self._closed:
                hooks.close()
            return hooks
