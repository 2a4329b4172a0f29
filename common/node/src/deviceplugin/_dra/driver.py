"""The DRA driver of a node: it restores what was prepared, serves, and is registered."""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from typing import Final

from deviceplugin._attribution.claim_holders import Place, UnreadableRecords
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.claims import devices
from deviceplugin._dra.claims.claim_files import ClaimFiles
from deviceplugin._dra.claims.devices import Locator, claimed_places, names_of, places_of
from deviceplugin._dra.claims.metadata import Describe
from deviceplugin._dra.claims.parts import NOBODY, Makers
from deviceplugin._dra.claims.preparing import Preparing
from deviceplugin._dra.claims.reading import ClaimReader
from deviceplugin._dra.claims.records import Records
from deviceplugin._dra.serving import instances
from deviceplugin._dra.serving.health import HealthReport, HealthStreams
from deviceplugin._dra.serving.server import DriverSettings, Registration, Server
from deviceplugin._dra.serving.service import DraPlugin
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.boot import boot_id
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._platform.unix_sockets import advised
from deviceplugin._platform.waiting import Waiter
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import AllocationError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_AGAIN: Final = 1.0
"""Seconds until a failure is tried again, unless a directory changes before."""
_AFTER_FAILURE: Final = 5.0
"""Seconds after an error of the framework itself."""
_CHECK: Final = 30.0
"""Seconds between checks of the CDI files, in case an event was lost."""


@dataclass(eq=False, repr=False)
class Driver:
    """Serves claims of one driver. ``run`` is its thread; the rest is thread-safe.

    Of several processes of a driver each serves, one at a time changes claims, and one leads. A
    process that starts beside another serves once it knows its devices and what pods hold.
    ConfigError if a directory has a path that is too long for sockets.
    """

    settings: DriverSettings
    _: KW_ONLY
    resources: Callable[[], Mapping[str, Resource]]
    discovered: Callable[[], bool]
    """Returns whether all plugins have discovered their devices at least once."""
    ownership: Ownership
    claims: ClaimReader
    watcher: FileWatcher
    metrics: Metrics
    registered: Callable[[], None] = lambda: None
    """Called when the kubelet has registered the driver."""
    makers: Makers = NOBODY
    """The plugins that make parts."""
    claims_changed: Callable[[], None] = lambda: None
    """Called when a claim was prepared or released, by this process or by another one."""
    led: Callable[[], None] = lambda: None
    """Called when this process begins to lead."""
    unusable: Callable[[], str] = str
    """Returns why no claim can be prepared now; empty if they can."""
    describe: Describe | None = None
    """Describes a device to the containers that get it; without it they are not told."""
    boot: str = ""
    """Identifies the boot of the machine; by default the kernel's."""
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        settings = self.settings
        settings.check()
        self._waiter = Waiter(self.clock)
        self._records = Records(settings.claims_dir)
        self._files = ClaimFiles(settings.cdi_dir, settings.name, settings.metadata_dir)
        self._turn = instances.Turn(
            settings.directory / instances.TURN,
            news=lambda: self._begins or self._records.has_news(),
            refresh=self._refresh,
            leave=self._records.seen,
        )
        self.is_busy = self._turn.is_used
        self._unrecorded = UnreadableRecords(
            settings.name,
            files=self._records.set_aside,
            recorded=lambda: claimed_places(settings.name, self._records.all().values()),
            places_of=lambda key: names_of(
                settings.name, settings.node, key, self.resources().get(key[0])
            ),
        )
        self._preparing = preparing = Preparing(
            settings.name,
            self.boot or boot_id(),
            records=self._records,
            claim_files=self._files,
            ownership=self.ownership,
            claims=self.claims,
            locator=Locator(settings.node, self.resources, self.discovered),
            metrics=self.metrics,
            unusable=self.unusable,
            describe=self.describe,
            changed=self.claims_changed,
            makers=self.makers,
            part_lock=lambda name: instances.part_lock(settings, name),
            turn=self._turn.hold,
            lost=self._unrecorded.of,
            clock=self.clock,
        )
        self.release = preparing.release
        self._plugin = DraPlugin(settings.name, preparing, self.metrics, self.clock)
        self._report = HealthReport(
            settings.node,
            resources=self.resources,
            ownership=self.ownership,
            records=self._records.all,
            discovered=self.discovered,
        )
        self.records, self.health = self._records.all, self._report.read
        self._streams = HealthStreams(self.health, self.clock, self.is_busy)
        self._set_registered(registered=False)
        self.leads = False
        """Whether this process publishes the slices, and no other one of the driver does."""
        self._follows, self._begins = False, True
        self._problem, self._problems = "not started", Problems(log)
        self._end = self.ownership.subscribe(self.changed)

    def places(self) -> Mapping[Place, Collection[Key]]:
        """Return the devices of recorded claims by their names in slices."""
        return places_of(self.settings.name, self._records.all().values())

    @property
    def is_needed(self) -> bool:
        """Whether claims are prepared, or may be."""
        return bool(self._records.all()) or bool(self._unrecorded)

    def problem(self) -> str:
        """Return why claims cannot be prepared now; empty if they can."""
        return self._problem or ("" if self.is_registered else "waiting for the kubelet")

    def changed(self) -> None:
        """Report the health of devices to the kubelet, because it may have changed."""
        self._streams.poke()

    def restore(self) -> None:
        """Withhold the devices of the recorded claims, before anything is given out."""
        before = self._records.all()
        found = self._records.load(moves=self._begins)
        devices.restore(self.ownership, found.values(), self._unrecorded)
        for uid in before.keys() - found.keys():  # another process has released it
            self.ownership.unprepare(uid)
        self.metrics.claims_prepared.labels(self.settings.name).set(len(found))
        self._preparing.note_parts(*before.values(), *found.values())

    def stop(self) -> None:
        """Make ``run`` return without waiting for hooks or the API server."""
        self._end()
        self._report.stop()
        self._waiter.end()
        self._turn.close()
        self._preparing.close()

    def run(self) -> None:
        """Serve until stopped. The records and the CDI files stay: their pods go on running."""
        settings = self.settings
        with ExitStack() as stack:
            files = (settings.cdi_dir, settings.metadata_dir)
            for path in (settings.registry_dir, settings.directory, *files):
                stack.callback(self.watcher.watch(path, lambda _name: self._waiter.poke()))
            stack.callback(self.watcher.watch(settings.claims_dir, self._record_changed))
            while not self._waiter.is_over():
                try:
                    with instances.instance(settings) as own:
                        self._live(own)
                except OSError as error:
                    self._failed(_text(error))
                except Exception as error:
                    self._failed(f"{type(error).__name__}: {error}", error)
                    self._waiter.pause(_AFTER_FAILURE)
                self._waiter.until_poked(_AGAIN)
        self._problem = "stopped"
        self.metrics.driver_registered.remove(settings.name)

    def _live(self, own: DriverSettings) -> None:
        """Serve, again and again whenever the sockets are lost, until stopped."""
        leader = instances.FileLock(own.directory / instances.LEADER)
        try:
            while not self._waiter.is_over():
                wait = self._tend(own, leader)  # so that the devices of claims are withheld
                if self.leads or (self.discovered() and self.ownership.known):
                    self._serve(own, leader)
                else:
                    self._problem = "another process serves; it is not known yet what pods hold"
                    self._waiter.until_poked(wait)
        finally:
            self.leads = False
            leader.release()

    def _record_changed(self, _name: str | None) -> None:
        if not (self.is_busy() or self._turn.is_ours()):
            self._waiter.poke()

    def _refresh(self) -> None:
        """Learn what other processes have done, while no claim is being changed."""
        self.restore()
        (self._files.restore if self._begins else self._files.want)(self._records.all().values())
        self._begins = False
        self.claims_changed()

    def _tend(self, own: DriverSettings, leader: instances.FileLock) -> float:
        """Lead if no other process does, repair files; return the seconds until the next time."""
        taken = leader.take()
        self._begins = taken and not self.leads
        try:
            with self._turn.hold(lambda: 0.0):
                wait = self._repair() if taken else _AGAIN  # the files are the leader's to keep
        except AllocationError:  # another process prepares a claim
            return _AGAIN
        if taken and not self.leads and not self._begins:
            self.leads = True
            self.led()
        if self.leads == self._follows:
            self._follows = not self.leads
            event = "driver leads" if self.leads else "another process of the driver leads"
            log.info(event, extra={"driver": own.name, "instance": own.instance})
        if self.leads:
            instances.remove_stale_sockets(own)
        return wait

    def _serve(self, settings: DriverSettings, leader: instances.FileLock) -> None:
        streams = HealthStreams(self._report.read, self.clock, self.is_busy)
        registration = Registration(settings.name, settings.service_socket, self._notified)
        handlers = [*self._plugin.handlers(), *streams.handlers(), *registration.handlers()]
        self._set_registered(registered=False)
        server = Server(settings.service_socket, settings.registry_socket, handlers)
        self._streams = streams
        self._served()
        try:
            while not self._waiter.is_over() and not server.gone:
                self._waiter.until_poked(self._tend_while_serving(settings, leader))
                self._waiter.pause_while(self.is_busy)
        finally:
            self._set_registered(registered=False)
            streams.close()
            server.stop()
        if not self._waiter.is_over():
            fields = {"driver": settings.name}
            log.warning("sockets of the driver removed, serving again", extra=fields)

    def _tend_while_serving(self, own: DriverSettings, leader: instances.FileLock) -> float:
        try:
            return self._tend(own, leader)
        except OSError as error:
            self._problems.say("tend", "driver cannot lead", driver=own.name, error=_text(error))
            return _AGAIN

    def _repair(self) -> float:
        """Restore files that are lost; return the seconds until the next check."""
        try:
            for path in self._files.repair():
                fields = {"driver": self.settings.name, "file": path.name}
                log.warning("CDI file of a claim restored", extra=fields)
        except OSError as error:
            event = "CDI file of a claim cannot be written"
            self._problems.say("cdi", event, driver=self.settings.name, error=_text(error))
            return _AGAIN
        self._problems.over("cdi")
        return _CHECK

    def _notified(self, refusal: str) -> None:
        self._set_registered(registered=not refusal)
        if refusal:
            self._failed(f"refused by the kubelet: {refusal}")
        else:
            self._served()
            log.info("driver registered", extra={"driver": self.settings.name})
            self.registered()

    def _set_registered(self, *, registered: bool) -> None:
        self.is_registered = registered
        self.metrics.driver_registered.labels(self.settings.name).set(registered)

    def _served(self) -> None:
        self._problem = ""
        self._problems.over("driver")

    def _failed(self, problem: str, cause: Exception | None = None) -> None:
        self._problem, name = problem, self.settings.name
        self._problems.say("driver", "driver cannot serve", cause=cause, driver=name, error=problem)


def _text(error: OSError) -> str:
    return f"{error.filename}: {advised(error)}" if error.filename else str(error)
