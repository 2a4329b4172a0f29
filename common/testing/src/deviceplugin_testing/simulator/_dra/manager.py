"""The DRA manager: everything about claims in one kubelet process."""

import threading
from typing import Final

from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._dra.claims import ClaimCache, ContainerClaims
from deviceplugin_testing.simulator._dra.drivers import Drivers, Wiper
from deviceplugin_testing.simulator._dra.plugins import HealthReader
from deviceplugin_testing.simulator._dra.preparing import Preparer
from deviceplugin_testing.simulator._host.host import Host, Key

RECONCILE: Final = 60.0
"""Seconds between checks for claims whose pods are gone."""


class DraManager:
    """The parts of one kubelet process that have to do with claims."""

    def __init__(self, host: Host, manager: DeviceManager) -> None:
        self._host = host
        self._manager = manager
        self.cache = ClaimCache(host)
        self.wiper = Wiper(host)
        self.health = HealthReader(host, self._poke)
        self.drivers = Drivers(host, self.wiper, self.health)
        self.preparer = Preparer(host, self.cache, self.drivers)
        self.containers = ContainerClaims(host, self.cache)
        self._reconcile_at = host.clock()
        self._startup: threading.Thread | None = None

    def start(self) -> None:
        """Restore the claims; raise ``ValueError``. Slices are deleted in the background."""
        if not self._host.config.has_dra:
            return
        self.cache.restore()
        self.wiper.schedule("", self._host.config.wipe_after)
        if not self._host.config.wipe_after:
            self._startup = threading.Thread(target=self.wiper.run, name="wipe", daemon=True)
            self._startup.start()

    def _poke(self, driver: str, devices: set[Key]) -> None:
        """Note the pods to sync because the health of these devices changed."""
        pods: set[str] = set()
        for state in self.cache:
            if any((one.pool, one.name) in devices for one in state.drivers.get(driver, ())):
                pods |= state.pods
        self._host.poke(pods)

    def run(self) -> None:
        """Do what is due by the clock: delete slices, ask for health, release what is unused."""
        self.wiper.run()
        self.health.run()
        now = self._host.clock()
        if now >= self._reconcile_at and self._manager.sources_ready:
            self._reconcile_at = now + RECONCILE
            with self._host.changed:
                active = [uid for uid in self._host.pods if self._manager.active(uid)]
            self.preparer.reconcile(active)

    def stop(self) -> None:
        """Close all connections at once."""
        self.drivers.close()
        if self._startup:
            self._startup.join()
