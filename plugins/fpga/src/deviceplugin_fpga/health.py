"""The health of FPGAs, by what the hardware's own error registers say."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

import deviceplugin as dp
from deviceplugin_fpga import sysfs
from deviceplugin_fpga.drivers import Fme, Port
from deviceplugin_fpga.sysfs import SysfsError

Key: TypeAlias = tuple[str, str]
"""Resource and id of a device."""


class Severity(IntEnum):
    """What an error does to a device."""

    WARNING = 1
    """Told, and nothing else."""
    ERROR = 2
    """Unhealthy if it lasts."""
    FATAL = 3
    """Unhealthy at once."""


@dataclass(frozen=True)
class Finding:
    """An error that the hardware reports now."""

    attribute: str
    severity: Severity
    text: str


OF_PORT: Final[Mapping[str, Severity]] = {"errors": Severity.ERROR}
OF_FME: Final[Mapping[str, Severity]] = {
    "catfatal_errors": Severity.FATAL,
    "fme_errors": Severity.ERROR,
    "fme-errors/errors": Severity.ERROR,
    "pcie0_errors": Severity.ERROR,
    "pcie1_errors": Severity.ERROR,
    "nonfatal_errors": Severity.WARNING,
}
"""Below ``errors`` of an FME; each driver has its own selection."""
_REGISTER: Final = range(2**64)
"""What a register can hold."""
_DETAILS: Final = ("first_error", "first_malformed_req")
"""What stands beside ``errors`` and says more."""


def findings(fme: Fme, ports: Sequence[Port], ignored: Collection[str] = ()) -> list[Finding]:
    """Return what is wrong with ``fme`` and ``ports`` now, the worst first.

    A register that is not there says nothing, and one that cannot be read is an error.
    """
    found = list(_of(fme.folder, OF_FME, ignored))
    for port in ports:
        found += _of(port.folder, OF_PORT, ignored)
    return sorted(found, key=lambda one: -one.severity)


def _of(
    folder: Path, attributes: Mapping[str, Severity], ignored: Collection[str]
) -> Iterator[Finding]:
    for attribute, severity in attributes.items():
        if attribute in ignored:
            continue
        try:
            text = sysfs.read(folder, f"errors/{attribute}")
            value = _number(text)
        except SysfsError as error:
            yield Finding(attribute, Severity.ERROR, str(error))
        except ValueError:
            text = f"{folder.name}: {attribute} is {text[:40]!r}, which is no number"
            yield Finding(attribute, Severity.ERROR, text)
        else:
            if value:
                more = _details(folder) if attribute == "errors" else ""
                text = f"{folder.name}: {attribute} {value:#x}{more}"
                yield Finding(attribute, severity, text)


def _details(folder: Path) -> str:
    parts = []
    for name in _DETAILS:
        try:
            text = sysfs.read(folder, f"errors/{name}")
        except SysfsError:
            continue
        if text:
            parts.append(f"{name} {text[:40]}")
    return f" ({', '.join(parts)})" if parts else ""


def _number(text: str) -> int:
    value = int(text, 16) if text else 0
    if value not in _REGISTER:
        raise ValueError
    return value


@dataclass(slots=True)
class _Record:
    """What is known of one device."""

    reason: str
    """Why it is unhealthy; empty while it is healthy."""
    contrary_since: float = inf
    """When a look first said the opposite; seconds."""


class Doctor:
    """Turns what is found now into a verdict that does not flicker.

    The first look decides. Later an error must last for ``patience`` seconds before a device is
    unhealthy, and be gone as long before it is healthy again. Fatal errors do not wait.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._records: dict[Key, _Record] = {}
        self.due = inf
        """When the next verdict can change, by the same clock."""

    def health(self, key: Key, found: Sequence[Finding]) -> dp.Health:
        """Return the health of the device ``key``, of which ``found`` was found just now."""
        bad = [one for one in found if one.severity >= Severity.ERROR]
        reason = "; ".join(one.text for one in bad)
        record = self._records.setdefault(key, _Record(reason))
        if bool(reason) == bool(record.reason):
            record.reason, record.contrary_since = reason, inf
        else:
            now = self._clock()
            record.contrary_since = min(record.contrary_since, now)
            is_fatal = any(one.severity is Severity.FATAL for one in bad)
            if is_fatal or now - record.contrary_since >= self._patience:
                record.reason, record.contrary_since = reason, inf
        return dp.Health.unhealthy(record.reason) if record.reason else dp.Health()

    def end_look(self, keys: Collection[Key]) -> None:
        """Forget all but ``keys``, and note when to look again."""
        for key in self._records.keys() - set(keys):
            del self._records[key]
        suspected = (record.contrary_since for record in self._records.values())
        self.due = min(suspected, default=inf) + self._patience

    def is_due(self) -> bool:
        """Tell whether another look can change a verdict now."""
        return self._clock() >= self.due
