"""Calling ``start`` and ``stop`` of the plugin that serves a resource, in pairs."""

import logging
from typing import Final

from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.endpoint_status import EndpointStatus
from deviceplugin._platform.hooks import Hooks
from deviceplugin.errors import DevicePluginError
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_START_TIMEOUT: Final = 60.0
"""Seconds that ``start()`` may take."""
_STOP_TIMEOUT: Final = 10.0
"""Seconds that ``stop()`` may take."""


class PluginLifecycle:
    """Starts and stops the plugin of ``resource``. For one thread."""

    def __init__(self, resource: Resource, hooks: Hooks, status: EndpointStatus) -> None:
        self._resource = resource
        self._hooks = hooks
        self._status = status
        self._started: Plugin | None = None

    def start(self) -> bool:
        """Start the resource's plugin, and return whether it is started.

        If another plugin was started before, that one is stopped first. A failure is reported.
        """
        plugin = self._resource.plugin
        if self._started is plugin:
            return True
        self.stop()
        if not overrides(plugin, "start"):
            self._started = plugin
            return True
        before = self._status.problem
        self._status.set("start() is under way")
        try:
            self._hooks.call("start", plugin.start, self._resource.name, timeout=_START_TIMEOUT)
        except DevicePluginError as error:
            self._status.report("start() failed", str(error))
            return False
        self._started = plugin
        self._status.set(before)
        return True

    def stop(self) -> None:
        """Stop the plugin, if one has been started."""
        plugin, self._started = self._started, None
        if plugin is None or not overrides(plugin, "stop"):
            return
        try:
            # The endpoint's own Hooks are closed when it stops.
            Hooks().call("stop", plugin.stop, self._resource.name, timeout=_STOP_TIMEOUT)
        except DevicePluginError as error:
            log.warning(
                "stop() failed", extra={"resource": self._resource.name, "error": str(error)}
            )
