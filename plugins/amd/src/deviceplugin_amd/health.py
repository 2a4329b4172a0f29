"""The health of GPUs as the driver reports it: error counters, bad memory pages, hangs, resets.

The driver counts errors since it was loaded, and reports a hang only once. So some of it has to be
remembered until the driver is bound to the GPU again.
"""

import errno
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from deviceplugin.kit import drm
from deviceplugin.kit.state import State
from deviceplugin.kit.sysfs import Sysfs, UnreadableError, shown
from deviceplugin_amd.gpus import Gpu
from deviceplugin_amd.kfd import number

_VERSION: Final = 2
_COUNTER: Final = re.compile("[a-z0-9_]+_err_count")
_LINE: Final = re.compile("^(ue|ce): *([0-9]{1,20})$", re.MULTILINE)
_INACCESSIBLE: Final = "Query currently inaccessible"
_BAD_PAGE: Final = re.compile("^0x[0-9a-f]+ : 0x[0-9a-f]+ : ([RPF])$", re.MULTILINE)
"""R: taken out of use. P: still to be. F: could not be."""
_THRESHOLD: Final = "module/amdgpu/parameters/bad_page_threshold"
"""From so many bad pages on, the driver does not start the GPU. Unknown unless above 0."""
_NEARLY: Final = 0.9
"""The share of the threshold at which the driver itself begins to warn."""
_MOST: Final = 1 << 20
"""Bytes to read of the list of bad pages."""
_HIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


@dataclass(slots=True)
class Record:
    """What is remembered of a GPU."""

    identity: int
    uncorrected: dict[str, int] = field(default_factory=dict)
    """Errors by block that do not count: those of the first discovery."""


_Memory: TypeAlias = tuple[dict[str, Record], drm.Hangs]


@dataclass(slots=True)
class Verdict:
    """What is wrong with a GPU."""

    certain: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    """What may be over at the next discovery."""
    worn: list[str] = field(default_factory=list)
    """Why it works and will not for long."""
    corrected: int = 0
    """Corrected errors since the driver was loaded."""
    uncorrected: int = 0


class Errors:
    """The errors of GPUs. ``heard`` may be called from another thread.

    ``state`` remembers errors over a restart. Errors of the ``ignored`` blocks do not count.
    """

    def __init__(self, sysfs: Sysfs, state: Path | None, ignored: Collection[str] = ()) -> None:
        self._sysfs = sysfs
        self._state = State(state, _VERSION)
        self._ignored = frozenset(ignored)
        empty: _Memory = {}, drm.Hangs(sysfs)
        self._records, self._hangs = self._state.load(partial(_read, sysfs), empty)

    def heard(self, event: Mapping[str, str]) -> None:
        """Note an event of the kernel if it says that a GPU has hung or has recovered."""
        self._hangs.heard(event)

    def verdicts(self, gpus: Collection[Gpu]) -> dict[str, Verdict]:
        """Return what is wrong with each GPU, by address."""
        found = {gpu.address: self._verdict(gpu) for gpu in gpus}
        records = {key: asdict(one) for key, one in self._records.items()}
        self._state.save({"gpus": records, "hangs": self._hangs.remembered})
        return found

    def _record(self, gpu: Gpu) -> Record:
        """Return what is remembered of a GPU since the driver was bound to it."""
        known = self._records.setdefault(gpu.address, Record(gpu.identity))
        if gpu.identity not in (known.identity, 0):
            known = self._records[gpu.address] = Record(gpu.identity)
        return known

    def _verdict(self, gpu: Gpu) -> Verdict:
        record, found = self._record(gpu), Verdict()
        hang = self._hangs.check(gpu.folder)
        if gpu.in_reset:
            found.certain.append(gpu.in_reset)
        if hang.ways:
            found.certain.append(f"wedged: its driver asks for {hang.ways}")
        for block, (errors, corrected) in self._counts(gpu, found).items():
            found.corrected += corrected
            found.uncorrected += errors
            known = record.uncorrected.setdefault(block, errors)
            if errors < known or hang.has_recovered:
                known = record.uncorrected[block] = errors
            if errors > known:
                found.certain.append(f"{block}: {errors - known} uncorrectable errors")
        self._count_bad_pages(gpu, found)
        return found

    def _counts(self, gpu: Gpu, found: Verdict) -> dict[str, tuple[int, int]]:
        """Return uncorrectable and corrected errors by block. Some blocks have no counters."""
        counts: dict[str, tuple[int, int]] = {}
        for path in self._sysfs.matches(gpu.folder / "ras", [_COUNTER]):
            block = path.name.removesuffix("_err_count")
            text = "" if block in self._ignored else self._text(path, found)
            lines = dict(_LINE.findall(text))
            if "ue" in lines:
                counts[block] = int(lines["ue"]), int(lines.get("ce", "0"))
            elif text and _INACCESSIBLE not in text:
                found.doubtful.append(f"{path}: {shown(text)} is not a number of errors")
        return counts

    def _text(self, path: Path, found: Verdict) -> str:
        try:
            return self._sysfs.read(path, "", most=_MOST)
        except UnreadableError as error:
            if error.errno not in _HIDDEN:
                found.doubtful.append(str(error))
            return ""

    def _count_bad_pages(self, gpu: Gpu, found: Verdict) -> None:
        flags = Counter(_BAD_PAGE.findall(self._text(gpu.folder / "ras/gpu_vram_bad_pages", found)))
        if flags["F"]:
            found.certain.append(f"{flags['F']} bad memory pages could not be taken out of use")
        if flags["P"]:
            found.worn.append(f"{flags['P']} bad memory pages are still to be taken out of use")
        most = number(self._sysfs.text(_THRESHOLD))
        if most and flags.total() >= most * _NEARLY:
            found.worn.append(f"{flags.total()} bad memory pages: the driver stops it at {most}")


def _read(sysfs: Sysfs, document: Mapping[str, Any]) -> _Memory:
    records = {
        str(address): Record(
            int(one["identity"]),
            {str(block): int(count) for block, count in one["uncorrected"].items()},
        )
        for address, one in document["gpus"].items()
    }
    return records, drm.Hangs(sysfs, document["hangs"])
