"""The registered DRA drivers, of which each may have several instances."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from deviceplugin.proto.dra import CALL_TIMEOUT, HEALTH, V1, V1BETA1
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as watcher_pb
from deviceplugin_testing.simulator._dra.plugins import HEALTH_V1, DriverPlugin, HealthReader
from deviceplugin_testing.simulator._errors import CallError, ConnectError
from deviceplugin_testing.simulator._host.claim_source import ClusterError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._wire import go_quote

log = logging.getLogger(__name__)

_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 300.0
_JITTER: Final = 0.2


@dataclass(slots=True)
class _Wipe:
    due: float
    retry: float = _FIRST_RETRY
    begun: bool = False
    """Whether it has been tried. Then it is tried until it succeeds, even if the driver is back."""
    running: bool = False


class Wiper:
    """Deletes slices when they are due, and tries again with growing gaps."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._wipes: dict[str, _Wipe] = {}
        """By driver; that of the start is at the empty name."""

    @property
    def due(self) -> dict[str, float]:
        """When each deletion to come is due, by driver."""
        with self._host.changed:
            return {driver: wipe.due for driver, wipe in self._wipes.items()}

    def schedule(self, driver: str, delay: float) -> None:
        """Delete the driver's slices after ``delay`` seconds, unless that is planned already."""
        with self._host.changed:
            self._wipes.setdefault(driver, _Wipe(self._host.clock() + delay))

    def cancel(self, driver: str) -> None:
        """Do not delete the driver's slices, if that has not begun."""
        with self._host.changed:
            wipe = self._wipes.get(driver)
            if wipe and not wipe.begun:
                del self._wipes[driver]

    def run(self) -> None:
        """Delete what is due now."""
        now = self._host.clock()
        with self._host.changed:
            due = {
                driver: wipe
                for driver, wipe in self._wipes.items()
                if wipe.due <= now and not wipe.running
            }
            for wipe in due.values():
                wipe.begun = wipe.running = True
        for driver, wipe in due.items():
            self._delete(driver, wipe)

    def _delete(self, driver: str, wipe: _Wipe) -> None:
        problem = ""
        try:
            self._host.cluster.delete_slices(self._host.config.node_name, driver)
        except ClusterError as error:
            problem = str(error)
            log.debug("slices not deleted", extra={"driver": driver, "error": problem})
        with self._host.changed:
            wipe.running = False
            if problem:
                jitter = 1 + self._host.rng.random() * _JITTER
                wipe.due = self._host.clock() + wipe.retry * jitter
                wipe.retry = min(wipe.retry * 2, _LAST_RETRY)
            else:
                del self._wipes[driver]
                self._host.metrics.slice_deletions[driver] += 1
            self._host.notify()


WIPE_DELAY: Final = 30.0
"""Seconds after a driver's last connection was lost until its slices are deleted."""


class Drivers:
    """The instances of each driver, in the order of their registration."""

    def __init__(self, host: Host, wiper: Wiper, health: HealthReader) -> None:
        self._host = host
        self._wiper = wiper
        self._health = health
        self._instances: dict[str, list[DriverPlugin]] = {}
        self._closed = False

    @property
    def all(self) -> dict[str, list[DriverPlugin]]:
        with self._host.changed:
            return {driver: list(found) for driver, found in self._instances.items()}

    def get(self, driver: str) -> DriverPlugin:
        """Return the newest connected instance, or the newest; raise ``CallError`` without one."""
        with self._host.changed:
            instances = self._instances.get(driver)
            if not instances:
                raise CallError(f"DRA driver {driver} is not registered")
            connected = [each for each in instances if each.connected]
            return (connected or instances)[-1]

    # What the plugin watcher calls

    def complaint(self, info: watcher_pb.PluginInfo, endpoint: str) -> str:
        """Return why the services are of no use, or an empty string."""
        failed = f"invalid supported gRPC versions of DRA driver plugin {info.name} at endpoint "
        try:
            self._choose(info.supported_versions)
        except ValueError as error:
            return f"{failed}{endpoint}: {error}"
        return ""

    def _choose(self, services: Sequence[str]) -> str:
        """Return the first service that the kubelet knows, too."""
        known = [V1, V1BETA1] if self._host.release.calls_dra_v1 else [V1BETA1]
        if not services:
            raise ValueError("empty list of supported gRPC services (aka supported versions)")
        for service in services:
            if service in known:
                return service
        raise ValueError(
            f"none of services supported by the plugin ({_go_list(services)}) "
            f"are supported by the kubelet ({_go_list(known)})"
        )

    def register(self, info: watcher_pb.PluginInfo, endpoint: str) -> None:
        """Add an instance, whether or not its socket answers; raise ``ConnectError``."""
        driver = info.name
        with self._host.changed:
            instances = self._instances.setdefault(driver, [])
            if any(each.endpoint == endpoint for each in instances):
                raise ConnectError(
                    f"endpoint {endpoint} already registered for DRA driver plugin {driver}"
                )
            try:
                service = self._choose(info.supported_versions)
                plugin = DriverPlugin(driver, endpoint, service, CALL_TIMEOUT)
                if self._host.release.watches_advertised_health:
                    offered = (one for one in (HEALTH_V1, HEALTH) if one in info.supported_versions)
                    plugin.health = next(offered, "")
            except ValueError as error:
                raise ConnectError(
                    f"create gRPC connection to DRA driver {driver} plugin at endpoint {endpoint}: "
                    f"{error}"
                ) from None
            if self._closed:
                plugin.close()
                raise ConnectError("the kubelet has stopped")
            instances.append(plugin)
            self._sync(driver)
            plugin.watch(partial(self._connection_changed, plugin))
            self._health.read(plugin)

    def deregister(self, name: str, endpoint: str) -> None:
        """Remove the instance with this endpoint, if there is one."""
        with self._host.changed:
            instances = self._instances.get(name, [])
            for plugin in [each for each in instances if each.endpoint == endpoint]:
                instances.remove(plugin)
                if not instances:
                    del self._instances[name]
                plugin.close()
                self._sync(name)

    # Connections

    def _connection_changed(self, plugin: DriverPlugin, connected: bool) -> None:  # noqa: FBT001
        with self._host.changed:
            log.debug("connection changed", extra={"driver": plugin.driver, "up": connected})
            plugin.connected = connected
            self._sync(plugin.driver)

    def _sync(self, driver: str) -> None:
        """Plan the deletion of the driver's slices, or cancel it."""
        if any(each.connected for each in self._instances.get(driver, ())):
            self._wiper.cancel(driver)
        else:
            self._wiper.schedule(driver, WIPE_DELAY)
        self._host.notify()

    def close(self) -> None:
        """Close all connections, and wait for their threads."""
        with self._host.changed:
            self._closed = True
            plugins = [plugin for found in self._instances.values() for plugin in found]
        for plugin in plugins:
            plugin.close()
        for plugin in plugins:
            plugin.join()


def _go_list(words: Sequence[str]) -> str:
    return "[" + " ".join(map(go_quote, words)) + "]"
