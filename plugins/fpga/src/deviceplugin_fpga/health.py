"""The health of FPGAs, by the hardware's own error registers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeAlias

import deviceplugin as dp
from deviceplugin.kit.health import SteadyHealth
from deviceplugin.kit.sysfs import Sysfs, SysfsError
from deviceplugin_fpga.drivers import Fme, Port

Key: TypeAlias = tuple[str, str]
"""Resource and id of a device."""


class Severity(IntEnum):
    """The effect of an error on a device."""

    WARNING = 1
    """Degraded if it lasts."""
    ERROR = 2
    """Unhealthy if it lasts."""
    FATAL = 3
    """Unhealthy at once."""


@dataclass(frozen=True)
class Fault:
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
"""Registers below ``errors`` of an FME. Each driver has some of them."""
_REGISTER: Final = range(2**64)
"""The largest value of a register."""
DETAILS: Final = ("first_error", "first_malformed_req")
"""Attributes beside ``errors`` with details."""


def faults(fme: Fme, ports: Sequence[Port], ignored: Collection[str] = ()) -> list[Fault]:
    """Return the errors of ``fme`` and ``ports`` now, the worst first.

    A missing register is not an error. An unreadable one is.
    """
    found = list(_of(fme.ports[0].sysfs, fme.folder, OF_FME, ignored))
    for port in ports:
        found += _of(port.sysfs, port.folder, OF_PORT, ignored)
    return sorted(found, key=lambda one: -one.severity)


def _of(
    sysfs: Sysfs, folder: Path, attributes: Mapping[str, Severity], ignored: Collection[str]
) -> Iterator[Fault]:
    for attribute, severity in attributes.items():
        if attribute in ignored:
            continue
        try:
            text = sysfs.read(folder / "errors" / attribute, "")
            value = _number(text)
        except SysfsError as error:
            yield Fault(attribute, Severity.ERROR, str(error))
        except ValueError:
            text = f"{folder.name}: {attribute} is {text[:40]!r}, which is not a number"
            yield Fault(attribute, Severity.ERROR, text)
        else:
            if value:
                more = _details(sysfs, folder) if attribute == "errors" else ""
                text = f"{folder.name}: {attribute} {value:#x}{more}"
                yield Fault(attribute, severity, text)


def _details(sysfs: Sysfs, folder: Path) -> str:
    texts = {name: sysfs.text(folder / "errors" / name) for name in DETAILS}
    parts = [f"{name} {text[:40]}" for name, text in texts.items() if text]
    return f" ({', '.join(parts)})" if parts else ""


def _number(text: str) -> int:
    value = int(text, 16) if text else 0
    if value not in _REGISTER:
        raise ValueError
    return value


def judged(steady: SteadyHealth[Key], key: Key, found: Sequence[Fault]) -> dp.Health:
    """Return the health of the device ``key``, whose present errors are ``found``.

    Fatal errors take effect at once.
    """
    texts: dict[Severity, list[str]] = {severity: [] for severity in Severity}
    for one in found:
        texts[one.severity].append(one.text)
    return steady.weigh(
        key,
        certain=texts[Severity.FATAL],
        doubtful=texts[Severity.ERROR],
        wear=texts[Severity.WARNING],
    )
