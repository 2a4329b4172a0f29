"""Reading the streams in which drivers report the health of devices."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from deviceplugin_testing.simulator._dra.plugins import DriverPlugin
from deviceplugin_testing.simulator._host.health_reports import Key
from deviceplugin_testing.simulator._host.host import Host

RETRY: Final = 5.0
"""Seconds after the end of a stream until the kubelet asks for it again."""


class HealthReader:
    """Reads the streams of all instances, and asks for one that ended again after 5 s."""

    def __init__(self, host: Host, changed: Callable[[str, set[Key]], None]) -> None:
        self._host = host
        self._changed = changed
        self._plugins: list[DriverPlugin] = []

    def read(self, plugin: DriverPlugin) -> None:
        """Read the stream of an instance until the instance is closed."""
        if not self._host.release.watches_dra_health:
            return
        with self._host.changed:
            self._plugins = [each for each in self._plugins if not each.closed] + [plugin]
            self._open(plugin)

    def run(self) -> None:
        """Ask again for the streams for which it is time."""
        with self._host.changed:
            for plugin in self._due():
                self._open(plugin)

    def _due(self) -> Iterator[DriverPlugin]:
        now = self._host.clock()
        for plugin in self._plugins:
            due = plugin.health_due
            if due is not None and due <= now and not plugin.closed:
                yield plugin

    def _open(self, plugin: DriverPlugin) -> None:
        plugin.health_due = None
        plugin.spawn(partial(self._follow, plugin))

    def _follow(self, plugin: DriverPlugin) -> None:
        for response in plugin.reports():
            with self._host.changed:
                changed = self._host.dra_health.update(plugin.driver, response.devices)
                self._changed(plugin.driver, changed)
                self._host.notify()
        with self._host.changed:
            self._host.dra_health.clear(plugin.driver)
            plugin.health_due = self._host.clock() + RETRY
            self._host.notify()
