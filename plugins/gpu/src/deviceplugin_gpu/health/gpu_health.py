"""Whether each GPU of a node is healthy, since when, and when it recovers.

One ``Health`` lives as long as the process. The thread that listens calls ``saw_xid``. Each
discovery calls ``observe``, or ``failed`` if it failed. ``verdict`` answers from memory, for a GPU
or a MIG device. A GPU recovers only in ``observe``, that is, only after it has been read again.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from threading import Lock
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin_gpu.health.incidents import Incident, Record
from deviceplugin_gpu.health.license import DEFAULT, GRACE, LicenseRules, LicenseState
from deviceplugin_gpu.health.xids import Checks, known
from deviceplugin_gpu.snapshot import NOT_REMAPPED, Gpu, Snapshot

log = logging.getLogger(__name__)

RECOVERY: Final = 300.0
_WHOLE: Final = "GPU-"
"""The prefix of UUIDs of whole GPUs. Those of MIG devices have another."""
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The health of a GPU."""

    reason: str = ""
    """Empty if it is healthy."""
    cause: str = ""
    """The kind of reason: ``xid_79``, ``unreadable``, ``missing``, ``reset``, ``nvml``,
    ``license``."""
    since: float = 0.0
    """When it last became healthy or unhealthy, in Unix seconds."""
    wear: str = ""
    """Why it will not work for long, or not as it should; empty if nothing says so."""
    license: LicenseState = field(default_factory=LicenseState)

    @property
    def health(self) -> dp.Health:
        """The same for the framework."""
        if self.reason:
            return dp.Health.unhealthy(self.reason, self.cause)
        return dp.Health.degraded(self.wear)


class Health:
    """The health of all GPUs of a node. Thread-safe; no call waits for hardware.

    ``record`` stores incidents for the next process. ``clock`` returns seconds since the boot, and
    ``wall`` Unix seconds.
    """

    def __init__(
        self,
        *,
        record: Record | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._checks, self._recovery = Checks(), RECOVERY
        self._record = record or Record(None)
        self._clock = clock
        self._wall = wall
        self._lock = Lock()
        self._incidents = self._record.load(clock())
        self._counts: Counter[tuple[str, int]] = Counter()
        self._gpus: Mapping[str, Gpu] = {}
        self._parents: Mapping[str, str] = {}
        self._problems: Mapping[str, str] = {}
        self._advice: Mapping[str, bool] = {}
        self._energy: Mapping[str, int] = {}
        self._failure = ""
        self._verdicts: dict[str, Verdict] = {}
        self._slow = SteadyHealth[str](clock=clock)
        self._rules = DEFAULT
        self._acquiring_until = GRACE

    def configure(self, checks: Checks, recovery: float, rules: LicenseRules = DEFAULT) -> None:
        """Change which XIDs count, and after how many seconds without another error GPUs recover.

        A GPU that its hardware slows down is degraded after as long, and well again after as long.
        Incidents are kept.
        """
        with self._lock:
            self._checks, self._recovery, self._rules = checks, recovery, rules
            self._judge()

    def saw_xid(self, uuid: str, number: int, instance: int | None = None) -> None:
        """Record an XID of a GPU or MIG device, or of one GPU ``instance`` of it.

        If the UUID is empty, or is that of an unknown MIG device, the XID may be of any GPU. If it
        is that of an unknown GPU, such as one for a display, it affects none of the known GPUs.
        An error that a reset of the GPU ends concerns all of its instances.
        """
        with self._lock:
            is_other = uuid.startswith(_WHOLE) and uuid not in self._gpus
            parent = uuid if is_other else self._parents.get(uuid, "")
            self._count(parent, number)
            if self._checks.count(number) and not is_other:
                concerned = [parent] if parent else [*self._gpus]
                whole = known(number).action.needs_reset or instance not in self._instances(parent)
                kind = number, None if whole else instance
                new = [self._add(one, kind, suspected=not parent) for one in concerned]
                if any(new):
                    self._record.save(self._incidents)
                self._judge()

    def failed(self, reason: str) -> None:
        """Record that no GPU can be read, until ``observe`` is called again."""
        with self._lock:
            self._failure = reason
            # The driver, and with it the daemon for licenses, begins anew.
            self._acquiring_until = self._clock() + GRACE
            self._judge()

    def observe(
        self,
        snapshot: Snapshot,
        problems: Mapping[str, str] = _NOTHING,
        needs_reset: Mapping[str, bool] = _NOTHING,
        energy: Mapping[str, int] = _NOTHING,
    ) -> None:
        """Record what a discovery found: GPUs, and other problems by UUID.

        ``needs_reset`` is whether the driver calls for a reset, and ``energy`` the millijoules used
        since the driver was loaded or the GPU was reset, of those of which it says so at all.
        """
        with self._lock:
            self._failure = ""
            self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
            self._parents = {
                uuid: gpu.uuid
                for gpu in snapshot.gpus
                for uuid in (gpu.uuid, *(mig.uuid for mig in gpu.migs))
            }
            self._problems, self._advice = dict(problems), dict(needs_reset)
            self._energy = dict(energy)
            self._acquit()
            for uuid in self._energy.keys() & self._incidents.keys():
                for incident in self._incidents[uuid].values():
                    incident.has_used(self._energy[uuid])
            self._slow.keep({*self._gpus})
            for gpu in snapshot.gpus:
                self._observe_clocks(gpu)
            for uuid in [*self._incidents]:
                self._heal(uuid)
            self._record.save(self._incidents)
            self._judge()

    def verdict(self, uuid: str, mig: str = "") -> Verdict:
        """Return the health of a GPU, or of its MIG device ``mig``. An unknown GPU is unhealthy."""
        with self._lock:
            whole = self._verdicts.get(self._parents.get(uuid, uuid))
            found = self._verdicts.get(mig or uuid, whole)
        return found or Verdict("not found by a discovery", "missing", self._wall())

    def xids(self) -> Mapping[tuple[str, int], int]:
        """Return how often each XID was seen, by the GPU's UUID (empty if unknown) and XID."""
        with self._lock:
            return dict(self._counts)

    def _count(self, uuid: str, number: int) -> None:
        self._counts[uuid, number] += 1
        count = self._counts[uuid, number]
        if count & (count - 1) == 0:  # 1, 2, 4, 8...: a storm of errors is logged in a few lines
            xid = known(number)
            log.warning(
                "XID error",
                extra={
                    "gpu": uuid or None,
                    "xid": number,
                    "meaning": xid.meaning,
                    "action": xid.action.value,
                    "count": count,
                },
            )

    def _instances(self, uuid: str) -> frozenset[int]:
        gpu = self._gpus.get(uuid)
        return frozenset(mig.gpu_instance for mig in gpu.migs) if gpu else frozenset()

    def _add(self, uuid: str, kind: tuple[int, int | None], *, suspected: bool) -> bool:
        """Add an incident, and return whether it is new."""
        incidents = self._incidents.setdefault(uuid, {})
        before = incidents.get(kind)
        incidents[kind] = Incident(
            kind[0],
            before.since if before else self._wall(),
            self._clock(),
            suspected and (before is None or before.suspected),
            energy=self._energy.get(uuid, 0),
            instance=kind[1],
        )
        return before is None

    def _observe_clocks(self, gpu: Gpu) -> None:
        """Judge whether the hardware slows a GPU down: a hot moment is nothing to report."""
        if self._slow.latest(gpu.uuid, inf) is None:  # also a slow GPU has to be it for a while
            self._slow.judge(gpu.uuid, dp.Health())
        if not gpu.problem:
            lasting = Tolerance(patience=self._recovery, recovery=self._recovery)
            self._slow.judge(gpu.uuid, dp.Health.degraded(gpu.slowdown), lasting)

    def _wear(self, gpu: Gpu, state: LicenseState) -> str:
        slow = self._slow.latest(gpu.uuid, inf)
        return "; ".join(filter(None, (*gpu.wear, slow.reason if slow else "", state.wear)))

    def _is_away(self, uuid: str) -> bool:
        gpu = self._gpus.get(uuid)
        return gpu is None or bool(gpu.problem)

    def _acquit(self) -> None:
        """Blame an error that may be of several GPUs on the one that is missing now, if one is."""
        away = [one for uuid, one in self._incidents.items() if self._is_away(uuid)]
        explained = {kind for incidents in away for kind in incidents}
        for uuid, incidents in self._incidents.items():
            for kind in explained & incidents.keys():
                if incidents[kind].suspected and not self._is_away(uuid):
                    del incidents[kind]

    def _heal(self, uuid: str) -> None:
        advice = self._advice.get(uuid)
        incidents = self._incidents[uuid]
        if self._is_away(uuid):
            for incident in incidents.values():
                incident.reset = True
            return
        if uuid in self._problems or advice:
            return
        now, there = self._clock(), {None, *self._instances(uuid)}
        for kind, incident in [*incidents.items()]:
            is_gone = incident.instance not in there  # what comes in its place is another one
            if is_gone or incident.is_over(now, self._recovery, well=advice is False):
                del incidents[kind]
        if not incidents:
            del self._incidents[uuid]

    def _judge(self) -> None:
        """Update all verdicts, and log each change of health."""
        now = self._wall()
        before, self._verdicts = self._verdicts, {}
        for uuid, gpu in self._gpus.items():
            state = self._rules.judge(
                gpu.license, now, acquiring=self._clock() < self._acquiring_until
            )
            reason = self._reason(gpu, state)
            whole = Verdict(*reason, now, self._wear(gpu, state), state)
            self._pronounce(uuid, before.get(uuid), whole)
            for mig in gpu.migs:
                error, cause = self._error(uuid, mig.gpu_instance)
                if error or mig.uuid in before:
                    own = replace(whole, reason=error, cause=cause)
                    self._pronounce(mig.uuid, before.get(mig.uuid), whole if whole.reason else own)

    def _pronounce(self, uuid: str, before: Verdict | None, found: Verdict) -> None:
        """Set the verdict of a GPU or MIG device."""
        if before is not None and bool(before.reason) == bool(found.reason):
            found = replace(found, since=before.since)
        elif found.reason:
            log.warning("GPU is unhealthy", extra={"gpu": uuid, "reason": found.reason})
        elif before is not None:
            log.info("GPU is healthy again", extra={"gpu": uuid, "was": before.reason})
        self._verdicts[uuid] = found

    def _error(self, uuid: str, instance: int | None = None) -> tuple[str, str]:
        """Return the worst error that counts of a GPU, or of its GPU instance, as ``_reason``."""
        counting = [
            incident
            for incident in self._incidents.get(uuid, {}).values()
            if incident.instance == instance and self._checks.count(incident.number)
        ]
        if not counting:
            return "", ""
        worst = max(counting, key=lambda one: (one.xid.action.needs_reset, one.last))
        return worst.reason, f"xid_{worst.number}"

    def _reason(self, gpu: Gpu, state: LicenseState) -> tuple[str, str]:
        if self._failure:
            return self._failure, "nvml"
        if problem := gpu.problem or self._problems.get(gpu.uuid, ""):
            return problem, "remap_failed" if problem == NOT_REMAPPED else "unreadable"
        if (error := self._error(gpu.uuid))[0]:
            return error
        if self._advice.get(gpu.uuid):
            return "the driver says that it needs a reset", "reset"
        return (state.fault, "license") if state.fault else ("", "")
