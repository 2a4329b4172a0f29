"""What happened to GPUs, and a file that remembers it over restarts of the plugin."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.state import State
from deviceplugin_gpu.health.xids import Xid, known

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_VERSION: Final = 1
_PATIENCE: Final = 12
"""How many times as long a GPU is left alone after what calls for a reset, if nobody resets it."""


@dataclass(slots=True)
class Incident:
    """One kind of error on one GPU."""

    number: int
    """The XID."""
    since: float
    """When it came first, in Unix seconds."""
    last: float
    """When it came last, in seconds since the boot."""
    suspected: bool = False
    """Whether the driver did not say which GPU it was."""
    reset: bool = False
    """Whether the GPU was seen to be away since, and with it what was wrong, most likely."""

    @property
    def xid(self) -> Xid:
        """What is known of the XID."""
        return known(self.number)

    @property
    def reason(self) -> str:
        """What people are told."""
        where = " on a GPU that is not known" if self.suspected else ""
        return f"{self.xid}{where}: {self.xid.action.value}"

    def is_over(self, now: float, recovery: float, *, well: bool) -> bool:
        """Tell whether enough time passed; ``well`` if the driver says that no reset is needed."""
        lasting = self.xid.action.needs_reset and not (self.reset or self.suspected or well)
        return now - self.last >= recovery * (_PATIENCE if lasting else 1)


Incidents = dict[str, dict[int, Incident]]
"""By UUID of the GPU and XID."""


class Record:
    """The file with all incidents of this boot; nothing is kept without a path.

    A reboot resets all GPUs, so what happened before it is not read. ``boot`` is the file that
    says which boot it is.
    """

    def __init__(self, path: Path | None, boot: Path = BOOT_ID) -> None:
        self._state = State(path, _VERSION)
        self._boot = _text(boot)

    def load(self, now: float) -> Incidents:
        """Return what was kept; a file that makes no sense counts as empty."""

        def read(document: Mapping[str, Any]) -> Incidents:
            if document["boot"] != self._boot:
                return {}
            return {uuid: _read(kept, now) for uuid, kept in document["gpus"].items()}

        return self._state.load(read, {})

    def save(self, incidents: Incidents) -> None:
        """Keep ``incidents``, or log why they cannot be kept."""
        gpus = {uuid: [asdict(one) for one in kept.values()] for uuid, kept in incidents.items()}
        self._state.save({"boot": self._boot, "gpus": gpus})


def _read(kept: list[Mapping[str, Any]], now: float) -> dict[int, Incident]:
    found = [
        Incident(
            int(entry["number"]),
            float(entry["since"]),
            _past(float(entry["last"]), now),
            bool(entry["suspected"]),
            bool(entry["reset"]),
        )
        for entry in kept
    ]
    return {incident.number: incident for incident in found}


def _past(seconds: float, now: float) -> float:
    """Return a time that is not after ``now``, whatever it is."""
    return seconds if seconds <= now else now  # noqa: FURB136 - not a number is neither


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
