"""A driver that runs in threads on a node, and can be stopped and started again."""

import threading
from pathlib import Path

import deviceplugin as dp
from deviceplugin._dra.driver import Driver
from deviceplugin._dra.serving.server import DriverSettings
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_watcher import FileWatcher
from drivers.driver_client import Registered, register
from drivers.driver_node import DRIVER, NODE, DriverNode, gopher
from patience import PATIENCE


class RunningDriver:
    """A node with its driver."""

    def __init__(self, path: Path) -> None:
        self.node = DriverNode(path, gopher("gary"), gopher("gerd"), gopher("gina"))
        self.settings = DriverSettings(
            name=DRIVER,
            node=NODE,
            driver_dir=path / "plugins",
            registry_dir=path / "plugins_registry",
            cdi_dir=path / "cdi",
        )
        self.settings.driver_dir.mkdir(exist_ok=True)
        self.settings.registry_dir.mkdir(exist_ok=True)
        self.registry_socket = self.settings.registry_dir / f"{DRIVER}-reg.sock"
        self.service_socket = self.settings.directory / "dra.sock"
        self.started: list[tuple[Driver, FileWatcher, list[threading.Thread]]] = []

    def start(self, clock: Clock = MONOTONIC) -> Driver:
        node = self.node
        node.restart()
        watcher = FileWatcher(5.0)
        try:
            driver = Driver(
                self.settings,
                resources=lambda: node.resources,
                discovered=lambda: node.discovered,
                ownership=node.ownership,
                claims=node.store,
                watcher=watcher,
                metrics=node.metrics,
                boot=node.boot_id,
                clock=clock,
            )
            driver.restore()
        except (OSError, dp.ConfigError):
            watcher.close()
            raise
        threads = [threading.Thread(target=run) for run in (watcher.run, driver.run)]
        for thread in threads:
            thread.start()
        self.started.append((driver, watcher, threads))
        return driver

    def stop(self, driver: Driver) -> None:
        (one,) = (one for one in self.started if one[0] is driver)
        self.started.remove(one)
        _, watcher, threads = one
        driver.stop()
        watcher.stop()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def close(self) -> None:
        """Stop all that run."""
        for driver, _, _ in list(self.started):
            self.stop(driver)

    def register(self) -> Registered:
        return register(self.registry_socket)
