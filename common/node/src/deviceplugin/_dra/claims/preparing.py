"""Preparing claims for containers, and undoing that. Knows nothing of gRPC.

The order in a Prepare: the devices are withheld from others; that is recorded on the disk; parts
are made; the plugin's other hooks are called; the CDI file, and before it what it mounts, is
written; the answer is recorded. If the process is killed in between, the next one answers the same
names or begins again, and nobody else gets the devices meanwhile.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final, TypeVar

from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._dra.claims.allocations import Asking, PluginCalls, limit, unanswered
from deviceplugin._dra.claims.claim_files import ClaimFiles, kind_of
from deviceplugin._dra.claims.devices import Candidates, Locator, book
from deviceplugin._dra.claims.locks import ClaimLocks, HardwareCalls, ProcessLock
from deviceplugin._dra.claims.metadata import Describe, DescribedClaims
from deviceplugin._dra.claims.parameters import ParameterReader
from deviceplugin._dra.claims.parts import NOBODY, Makers, PartMaker, intended, made
from deviceplugin._dra.claims.reading import Attempt, ClaimReader, PatientReader, Result, results
from deviceplugin._dra.claims.record import Record, RecordedDevice, is_uid
from deviceplugin._dra.claims.records import Records
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import AllocationError, DevicePluginError
from deviceplugin.kit.log import few
from deviceplugin.model import Device, Part

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_LOST: Final = "a part that was made for it stays: remove it by the vendor's tool"
_MANY: Final = 10
"""Most devices that one log line names."""


@dataclass(eq=False, repr=False)
class Preparing:
    """Prepares claims, and undoes it. Thread-safe; one claim is one thread's at a time."""

    driver: str
    boot: str
    """Identifies the boot of the machine."""
    _: KW_ONLY
    records: Records
    """The records, which must have been loaded."""
    claim_files: ClaimFiles
    ownership: Ownership
    """Decides who gets a device. It must have what the records say."""
    claims: ClaimReader
    locator: Locator
    metrics: Metrics
    unusable: Callable[[], str] = str
    """Returns why no claim can be prepared now; empty if they can."""
    describe: Describe | None = None
    """Describes a device to the containers that get it; without it they are not told."""
    changed: Callable[[], None] = lambda: None
    """Called when a claim was prepared or released."""
    turn: Callable[[Callable[[], float]], AbstractContextManager[None]] = lambda _left: (
        nullcontext()
    )
    """Keeps other processes from changing claims while in its context, which takes at most the
    seconds that its argument returns."""
    makers: Makers = NOBODY
    """The plugins that make parts. They are told of each before it is made, and of each change."""
    part_lock: Callable[[str], ProcessLock] | None = None
    """Returns what keeps other processes from making parts of the same hardware."""
    lost: Callable[[Claim], Sequence[str]] = lambda _claim: ()
    """Returns what a claim whose record cannot be read has, as far as that is known."""
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        self._described = DescribedClaims(self.driver, self.describe)
        self._claims = PatientReader(self.claims, self.clock)
        self._calls = PluginCalls()
        check_nodes = self.ownership.hardware.check_nodes
        self._asking = Asking(kind_of(self.driver), self._calls, check_nodes)
        self._parameters = ParameterReader(self.driver)
        self._locks = ClaimLocks()
        self._part_calls = HardwareCalls(self.part_lock, self.clock)
        self._parts = PartMaker(
            self.driver,
            self.locator,
            self._part_calls,
            self.metrics,
            made=lambda: made(self.records.all().values(), self.boot),
            makers=self.makers,
        )
        self.note_parts = self._parts.note

    def close(self) -> None:
        """Stop waiting for the API server and for hooks: what waits fails at once."""
        self._claims.close()
        self._calls.close()
        self._part_calls.close()

    def prepare(
        self, claims: Sequence[Claim], left: Callable[[], float]
    ) -> Mapping[str, Sequence[RecordedDevice] | DevicePluginError]:
        """Make the devices of each claim ready for its containers; return them by the claim's uid.

        A claim that is prepared gets the same answer, unless a node of it is gone, and what its
        containers need is checked again. ``left`` returns the seconds that are left of the call.
        A claim with an error is not prepared, and nobody is given its devices: try again.
        """
        if reason := self.unusable():
            return dict.fromkeys((one.uid for one in claims), AllocationError(reason))
        attempts = self._claims.attempts(claims, left)
        return self._outcomes(
            claims, left, ((one, partial(self._prepare, one, left, read)) for one, read in attempts)
        )

    def _outcomes(
        self,
        claims: Sequence[Claim],
        left: Callable[[], float],
        tasks: Iterable[tuple[Claim, Callable[[], _T]]],
    ) -> Mapping[str, _T | DevicePluginError]:
        """Do ``tasks`` while no other process changes claims; it is on the disk at the end."""
        outcomes: dict[str, _T | DevicePluginError] = {}
        try:
            with _named_errors(), self.turn(left):
                for claim, do in tasks:
                    try:
                        with _named_errors(), self._locks.hold(claim.uid, left()):
                            outcomes[claim.uid] = do()
                    except DevicePluginError as error:
                        outcomes[claim.uid] = error
                self.records.sync()
        except DevicePluginError as error:
            return dict.fromkeys((one.uid for one in claims), error)
        return outcomes

    def _prepare(
        self, claim: Claim, left: Callable[[], float], attempt: Attempt
    ) -> Sequence[RecordedDevice]:
        if not is_uid(claim.uid):
            raise AllocationError(f"{claim.uid!r} is not the uid of a claim")
        record = self.records.get(claim.uid)
        if record is None or record.state != "prepared" or record.boot != self.boot:
            wanted = results(self._claims.read(claim, left, attempt), claim, self.driver)
        else:
            try:
                document = attempt()
            except DevicePluginError:  # what it has is known without the API server
                return self._given_again(record)
            wanted = results(document, claim, self.driver)
            if _has(record, wanted) and self.ownership.stale().keys().isdisjoint(record.held):
                return self._given_again(record)
        return self._give(claim, self.locator.find(wanted), record, left)

    def _given_again(self, record: Record) -> Sequence[RecordedDevice]:
        self.claim_files.put(record)
        return record.given

    def _give(
        self,
        claim: Claim,
        candidates: Sequence[Candidates],
        before: Record | None,
        left: Callable[[], float],
    ) -> Sequence[RecordedDevice]:
        # Before anything is withheld: what a user got wrong must cost no device.
        parameters = self._parameters.read(claim, candidates, before.parameters if before else ())
        used = [one.recorded for one in parameters.values()]
        found = book(self.ownership, claim, candidates, before)
        devices = intended(unanswered(found), before, self.boot)
        kept = _kept(before, devices)
        record = Record(claim, self.boot, "preparing", [*devices, *kept], parameters=used)
        had = None if before is None else (before.held, before.parts)
        begun: dict[Key, Part] = {}
        with ExitStack() as undo:
            if before is None:  # otherwise its containers may still be running
                undo.callback(lambda: self._undo(record, begun, left))
            if had != (record.held, record.parts):
                self.records.write(record)
            self.note_parts(record, before)
            found = self._parts.make(claim, found, left, begun)
            metadata = self._described.of(claim, found)
            mounts = self.claim_files.mounts(claim.uid, metadata)
            devices, document = self._asking.ask(claim.uid, found, parameters, left, mounts)
            record = replace(record, state="prepared", devices=[*devices, *kept], document=document)
            record = replace(record, metadata=metadata)
            self.claim_files.put(record)
            self.records.write(record)
            self.ownership.hardware.renew([one.key for one in devices if not one.admin])
            undo.pop_all()
        self.note_parts(record, before)
        self._changed()
        log.info("claim prepared", extra={"claim": str(claim), "devices": _listed(record)})
        self.metrics.events.add("claim prepared", device=_listed(record), detail=str(claim))
        return record.given

    def _changed(self) -> None:
        self.metrics.claims_prepared.labels(self.driver).set(len(self.records.all()))
        self.changed()

    def _undo(self, record: Record, begun: Mapping[Key, Part], left: Callable[[], float]) -> None:
        claim = record.claim
        try:
            with _named_errors():
                self.claim_files.drop(claim.uid)
                self._parts.unmake(claim, begun, left)
                self.records.remove(claim.uid)
        except DevicePluginError as error:  # it is recorded, so its devices stay withheld
            log.warning("claim not released", extra={"claim": str(claim), "error": str(error)})
        else:
            self.note_parts(record)
            self.ownership.unprepare(claim.uid)

    def unprepare(
        self, claims: Sequence[Claim], left: Callable[[], float]
    ) -> Mapping[str, DevicePluginError | None]:
        """Release the devices of each claim, by its uid; of one that is unknown there are none.

        The plugin's ``released`` is called first, so nobody gets the devices before it returns.
        A claim with an error is still prepared: try again.
        """
        tasks = ((one, partial(self._unprepare, one, left)) for one in claims)
        return self._outcomes(claims, left, tasks)

    def release(self, claim: Claim, left: Callable[[], float]) -> None:
        """Release the devices of ``claim``, as ``unprepare``; DevicePluginError if that fails."""
        for error in filter(None, self.unprepare([claim], left).values()):
            raise error

    def _unprepare(self, claim: Claim, left: Callable[[], float]) -> None:
        if not is_uid(claim.uid):
            return
        record = self.records.get(claim.uid)
        self.claim_files.drop(claim.uid)
        if record is not None:
            self._release(record, left)
        lost = self.lost(claim)
        was_lost = self.records.remove_set_aside(claim.uid)
        self.records.remove(claim.uid)
        self.note_parts(record)
        self.ownership.unprepare(claim.uid)
        if was_lost:
            fields = {"claim": str(claim), "devices": ", ".join(lost), "advice": _LOST}
            log.warning("claim released without its record", extra=fields)
        if record is not None:
            self._changed()
            log.info("claim released", extra={"claim": str(claim), "devices": _listed(record)})
            self.metrics.events.add("claim released", device=_listed(record), detail=str(claim))

    def _release(self, record: Record, left: Callable[[], float]) -> None:
        for name, keys in groupby(sorted(record.held), key=lambda key: key[0]):
            resource = self.locator.resource(name)
            ids = sorted((device_id for _, device_id in keys), key=natural_key)
            if resource is None:
                continue
            known = resource.devices
            devices = [known.get(one, Device(one, resource=name)) for one in ids]
            if self._calls.released(resource, devices, limit(left())):
                self.metrics.released.labels(name).inc(len(ids))
        if record.parts and record.state == "prepared":
            with suppress(OSError):  # a full disk must not keep a pod
                # If this process is killed now, a Prepare makes them again.
                self.records.write(replace(record, state="preparing"))
        self._parts.unmake(record.claim, record.parts, left)


@contextmanager
def _named_errors() -> Iterator[None]:
    """Raise an OSError of the context as an AllocationError."""
    try:
        yield
    except OSError as error:
        raise AllocationError(f"{error.filename}: {error.strerror}") from error


def _has(record: Record, wanted: Sequence[Result]) -> bool:
    given = {(one.request, one.pool, one.name, one.admin, one.share) for one in record.given}
    same = given == {(one.request, one.pool, one.device, one.admin, one.share) for one in wanted}
    parameters = {one.request: one.given for one in record.parameters}
    return same and all(one.parameters == parameters.get(one.request) for one in wanted)


def _kept(before: Record | None, devices: Sequence[RecordedDevice]) -> Sequence[RecordedDevice]:
    """Return what the claim held before it was allocated again, which a container may still use."""
    held = {one.key for one in devices if not one.admin}
    return [
        replace(one, request="", cdi_names=())
        for one in (before.devices if before else ())
        if not one.admin and one.key not in held
    ]


def _listed(record: Record) -> str:
    return few([one.id for one in record.devices], _MANY)
