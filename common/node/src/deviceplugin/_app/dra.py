"""DRA in this process: its driver, its slices and the API server. It is imported only if needed."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, get_args

from deviceplugin._app.dra_claims import Claims
from deviceplugin._app.dra_settings import DraSettings
from deviceplugin._app.host_directories import HostDirectories
from deviceplugin._app.threads import join
from deviceplugin._attribution.claim_holders import Place
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._config.settings import Settings
from deviceplugin._dra.claim_status import ClaimStatus
from deviceplugin._dra.claims.forgotten import ForgottenClaims
from deviceplugin._dra.claims.parts import NOBODY, Makers
from deviceplugin._dra.driver import Driver
from deviceplugin._dra.serving.server import DriverSettings
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.plan import Action
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site, offers, withheld
from deviceplugin._dra.slices.publisher import Publisher
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._telemetry.metrics import FAILED, OK, Metrics
from deviceplugin.apiserver import ApiServer, ResourceSlices
from deviceplugin.errors import ConfigError

_STOP_TIMEOUT: Final = 3.0
_LINGER: Final = 10
"""Intervals of pod resources for which the driver stays although nothing needs it. A pod can be on
its way to this node with a claim that was allocated before the slices were withdrawn, and without
the driver it could not even be deleted. The kubelet repeats a failed call after 90 s at most."""

_UNKNOWN: Final = (
    "waiting for pod resources: it is not known what pods hold; the kubelet does not answer, or "
    "lists no pods"
)


class Dra:
    """The driver and the publisher of a process; ConfigError if a setting or a record is unusable.

    The devices of recorded claims are withheld once it is made. ``discovered`` returns whether all
    plugins have discovered their devices at least once, and ``may_offer`` whether no other process
    offers them by the device plugin. ``thread`` creates a thread whose failure ends the process.
    ``holdings`` returns what the kubelet said last of what containers have.
    """

    def __init__(  # noqa: PLR0913 - the parts that meet here
        self,
        settings: Settings,
        names: DraSettings,
        *,
        ownership: Ownership,
        resources: Callable[[], Mapping[str, Resource]],
        discovered: Callable[[], bool],
        may_offer: Callable[[], bool] = lambda: True,
        watcher: FileWatcher,
        metrics: Metrics,
        thread: Callable[[str, Callable[[], None]], threading.Thread],
        directories: HostDirectories,
        holdings: Callable[[], Holdings | None] = lambda: None,
        makers: Makers = NOBODY,
        clock: Clock = MONOTONIC,
    ) -> None:
        self._names, self._directories = names, directories
        self._ownership, self._resources = ownership, resources
        self._discovered, self._may_offer = discovered, may_offer
        self._holdings, self._clock, self._makers = holdings, clock, makers
        self._published_once = self._registered_once = False
        self._needed_directories = [settings.driver_dir, settings.registry_dir, settings.cdi_dir]
        self._needed_at = clock.now()
        """When it was last known that pods need the driver."""
        self._linger = _LINGER * settings.pod_resources_interval.total_seconds()
        api = _api_server(settings, metrics)
        self.claims = Claims(api, self._needed)
        """What the driver reads of claims."""
        self._driver = self._make_driver(settings, watcher, metrics)
        self._forgotten = self._make_forgotten(settings)
        self._publisher = self._make_publisher(settings, api, metrics)
        self._status = self._make_status(metrics)
        try:
            self._driver.restore()
        except OSError as error:
            raise ConfigError(f"driver-dir: {error.filename}: {error.strerror}") from error
        self._threads = [
            thread("driver", self._driver.run),
            thread("forgotten-claims", self._forgotten.run),
            thread("publisher", self._publisher.run),
            *([thread("claim-status", self._status.run)] if settings.claim_status else []),
        ]
        self._endings: dict[str, Callable[[], None]] = {}

    def _make_driver(self, settings: Settings, watcher: FileWatcher, metrics: Metrics) -> Driver:
        return Driver(
            DriverSettings(
                name=self._names.driver,
                node=self._names.node,
                driver_dir=settings.driver_dir,
                registry_dir=settings.registry_dir,
                cdi_dir=settings.cdi_dir,
            ),
            resources=self._resources,
            discovered=self._discovered,
            ownership=self._ownership,
            claims=self.claims,
            watcher=watcher,
            metrics=metrics,
            registered=self._registered,
            makers=self._makers,
            claims_changed=self._changed,
            led=self._led,
            unusable=self._unusable,
            describe=Describer(self._names.driver).describe if settings.device_metadata else None,
        )

    def _make_forgotten(self, settings: Settings) -> ForgottenClaims:
        return ForgottenClaims(
            self._names.driver,
            records=self._driver.records,
            holdings=self._holdings,
            claims=self.claims,
            release=self._driver.release,
            is_registered=lambda: self._driver.is_registered and self.leads,
            interval=settings.pod_resources_interval.total_seconds(),
            clock=self._clock,
        )

    def _make_publisher(self, settings: Settings, api: ApiServer, metrics: Metrics) -> Publisher:
        driver, node = self._names.driver, self._names.node
        metrics.expect_driver(driver, get_args(Action))
        return Publisher(
            ResourceSlices(api, driver, node),
            Site(driver, node),
            catalogue=PoolCatalogue(
                Describer(driver, lists=settings.list_attributes), node, settings.on_unhealthy
            ),
            offers=self._offers,
            published=self._published,
            is_busy=self._driver.is_busy,
            count=lambda action, succeeded: metrics.slice_writes.labels(
                driver, action, OK if succeeded else FAILED
            ).inc(),
        )

    def _make_status(self, metrics: Metrics) -> ClaimStatus:
        driver, own = self._names.driver, self._driver
        return ClaimStatus(
            driver,
            records=lambda: own.records() if own.leads else {},
            health=own.health,
            claims=self.claims,
            is_busy=own.is_busy,
            count=lambda succeeded: metrics.claim_status_writes.labels(
                driver, OK if succeeded else FAILED
            ).inc(),
            clock=self._clock,
        )

    # As a front.

    def advertise(self, resource: Resource) -> None:
        if resource.name not in self._endings:
            self._endings[resource.name] = resource.subscribe(self.poke)
        self.poke()

    def withdraw(self, resource: Resource) -> None:
        self._endings.pop(resource.name, lambda: None)()
        self._publisher.poke()

    def poke(self) -> None:
        """Look soon whether what is offered has changed."""
        self._driver.changed()
        self._changed()

    def _changed(self) -> None:
        self._publisher.poke()
        self._status.poke()

    # As DRA.

    def start(self) -> None:
        """Serve and publish, in threads of its own."""
        self._names.marker.parent.mkdir(exist_ok=True)
        self._names.marker.touch()
        self._endings |= {
            "ownership": self._ownership.subscribe(self._changed),
            "directories": self._directories.subscribe(self._publisher.poke),
        }
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Withdraw the driver from the kubelet, and wait until that is done."""
        for end in self._endings.values():
            end()
        for one in (self._publisher, self._status, self._forgotten, self._driver):
            one.stop()
        join(self._threads, _STOP_TIMEOUT)

    def finish(self) -> None:
        """Remove what says that this node has slices, unless another process may publish some."""
        # No container has devices of unreadable records any more.
        for path in (self._names.marker, *self._names.unreadable()) if self.leads else ():
            path.unlink(missing_ok=True)

    def problem(self) -> str:
        """Return why claims cannot be prepared now; empty if they can."""
        # Only this shows that the kubelet is gone: it says nothing to the driver.
        is_known = self._ownership.known and self._holdings() is not None
        blind = self._ownership.mode == "dra" and not is_known
        return self._driver.problem() or (_UNKNOWN if blind else "")

    def trouble(self) -> str:
        """Return why devices are not offered as they should be; empty if they are."""
        waiting = "" if self._published_once else "waiting for the API server"
        return self.problem() or self._publisher.problem() or self.remark() or waiting

    @property
    def leads(self) -> bool:
        """Whether this process publishes the slices, and no other one does."""
        return self._driver.leads

    def remark(self) -> str:
        """Return that another process publishes the slices; empty if this one does."""
        if self.leads or self._driver.problem():
            return ""
        return "another process of this driver publishes the slices"

    def state(self) -> Mapping[str, Any]:
        """Return for JSON what a node has through DRA now, as far as this process knows."""
        return {
            "driver": self._names.driver,
            "registered": self._driver.is_registered,
            "published": self._publisher.is_settled,
            "problem": self.problem() or self._publisher.problem(),
        }

    @property
    def is_idle(self) -> bool:
        """Whether nobody has needed the driver for a while: no claim is or was to be prepared."""
        if self._driver.is_needed:
            self._needed()
        return self._clock.now() - self._needed_at >= self._linger

    def places(self) -> Mapping[Place, Collection[Key]]:
        return self._driver.places()

    # For its parts.

    def _needed(self) -> None:
        self._needed_at = self._clock.now()

    def _led(self) -> None:
        self._names.marker.touch()  # which the process that led may have removed
        self._publisher.registered()
        self._status.poke()

    def _registered(self) -> None:
        self._registered_once = True
        self._directories.registered()
        self._publisher.registered()

    def _offers(self) -> Offers | None:
        if not self.leads:
            return None  # the slices are the other process's
        # A kubelet that does not have the driver fails a pod's first attempt, and makes the next
        # only a minute later.
        complete = self._registered_once and self._discovered() and self._may_offer()
        offered = offers(self._ownership, self._resources(), complete=complete)
        if offered and self._unusable():
            return withheld(offered)
        former = {key for one in self._driver.records().values() for key in one.formerly_named}
        return withheld(offered, former) if offered and former else offered

    def _unusable(self) -> str:
        """Return why no claim can be prepared, as far as directories of the host matter."""
        self._directories.check()
        return self._directories.problem(self._needed_directories)

    def _published(self, keys: Collection[Key]) -> None:
        self._published_once = True
        if keys:
            self._needed()
        self._ownership.published(keys)


def _api_server(settings: Settings, metrics: Metrics) -> ApiServer:
    name, count = "deviceplugin-dra", metrics.count_api_request
    if settings.api_server:
        return ApiServer(settings.api_server, name=name, count=count)
    try:
        return ApiServer.of_pod(name=name, count=count)
    except ConfigError as error:
        raise ConfigError(f"api-server is needed for DRA: {error}") from error
