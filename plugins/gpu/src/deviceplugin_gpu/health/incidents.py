"""Errors of GPUs, and a file that keeps them when the plugin restarts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.state import State
from deviceplugin_gpu import host
from deviceplugin_gpu.health.xids import Xid, known

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_VERSION: Final = 1
_PATIENCE: Final = 12
"""How many times longer a GPU is unhealthy after an error that calls for a reset, without one."""


@dataclass(slots=True)
class Incident:
    """One kind of error on one GPU."""

    number: int
    """The XID."""
    since: float
    """When it first occurred, in Unix seconds."""
    last: float
    """When it last occurred, in seconds since the boot."""
    suspected: bool = False
    """Whether the driver did not name the GPU."""
    reset: bool = False
    """Whether the GPU has been missing since, or its counter of energy began anew: it was reset."""
    energy: int = 0
    """What that counter has reached since, in millijoules; 0 if the driver has none."""
    instance: int | None = None
    """The GPU instance (MIG) that alone is concerned."""

    def has_used(self, energy: int) -> None:
        """Note what the driver's counter of energy has reached: only a reset takes it back."""
        self.reset |= energy < self.energy
        self.energy = energy

    @property
    def xid(self) -> Xid:
        """The catalogue's entry for the XID."""
        return known(self.number)

    @property
    def reason(self) -> str:
        """The reason for people to read."""
        where = " on a GPU that is not known" if self.suspected else ""
        return f"{self.xid}{where}: {self.xid.action.value}"

    def is_over(self, now: float, recovery: float, *, well: bool) -> bool:
        """Return whether it is over. ``well``: the driver says that no reset is needed."""
        lasting = self.xid.action.needs_reset and not (self.reset or self.suspected or well)
        return now - self.last >= recovery * (_PATIENCE if lasting else 1)


Kinds = dict[tuple[int, int | None], Incident]
"""By XID and GPU instance."""
Incidents = dict[str, Kinds]
"""By UUID of the GPU."""


class Record:
    """The file with all incidents of this boot: a reboot resets all GPUs.

    Without a path nothing is stored.
    """

    def __init__(self, path: Path | None, boot: Path = BOOT_ID) -> None:
        self._state = State(path, _VERSION)
        self._boot = host.text(boot)

    def load(self, now: float) -> Incidents:
        """Return the stored incidents; none if the file is invalid."""

        def read(document: Mapping[str, Any]) -> Incidents:
            if document["boot"] != self._boot:
                return {}
            return {uuid: _read(kept, now) for uuid, kept in document["gpus"].items()}

        return self._state.load(read, {})

    def save(self, incidents: Incidents) -> None:
        """Store ``incidents``, or log why they cannot be stored."""
        gpus = {uuid: [asdict(one) for one in kept.values()] for uuid, kept in incidents.items()}
        self._state.save({"boot": self._boot, "gpus": gpus})


def _read(kept: list[Mapping[str, Any]], now: float) -> Kinds:
    found: Kinds = {}
    for entry in kept:
        number, since, last = int(entry["number"]), float(entry["since"]), float(entry["last"])
        last = last if last <= now else now  # noqa: FURB136 - NaN is neither smaller nor larger
        states = bool(entry["suspected"]), bool(entry["reset"]), int(entry.get("energy") or 0)
        instance = None if entry.get("instance") is None else int(entry["instance"])
        found[number, instance] = Incident(number, since, last, *states, instance)
    return found
