"""The health of GPUs, by what the driver says: errors that were counted, pages that broke, resets.

The driver counts errors since it was loaded, and tells only once that a GPU has hung. So something
has to be remembered, until the driver is bound to the GPU anew.
"""

import errno
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from deviceplugin.kit import drm
from deviceplugin.kit.state import State
from deviceplugin.kit.sysfs import Sysfs, UnreadableError, shown
from deviceplugin_amd.gpus import Gpu, identity

_VERSION: Final = 1
_COUNTER: Final = re.compile("[a-z0-9_]+_err_count")
_LINE: Final = re.compile("^(ue|ce): *([0-9]{1,20})$", re.MULTILINE)
_INACCESSIBLE: Final = "Query currently inaccessible"
_BAD_PAGE: Final = re.compile("^0x[0-9a-f]+ : 0x[0-9a-f]+ : F$", re.MULTILINE)
_MOST: Final = 1 << 20
"""Bytes that are read of the list of bad pages."""
_HIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


@dataclass(slots=True)
class Record:
    """What is remembered of a GPU."""

    identity: int
    uncorrected: dict[str, int] = field(default_factory=dict)
    """Errors by block, of which nothing follows: those that were there first."""
    wedged: str = ""
    """How the driver says that it can be recovered."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The driver says that a GPU has hung, or that it has recovered."""

    identity: int
    """Of the GPU when it said so."""
    said: drm.Wedged


@dataclass(slots=True)
class Verdict:
    """What is wrong with a GPU."""

    certain: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    """What may be over at the next look."""
    corrected: int = 0
    """Errors that were corrected since the driver was loaded."""
    uncorrected: int = 0


class Errors:
    """What went wrong with GPUs. ``heard`` may be called in another thread.

    Args:
        sysfs: Where errors are counted.
        state: Keeps what is remembered over a restart of the plugin.
        ignored: Blocks of the GPU whose errors do not matter.
    """

    def __init__(self, sysfs: Sysfs, state: Path | None, ignored: Collection[str] = ()) -> None:
        self._sysfs = sysfs
        self._state = State(state, _VERSION)
        self._ignored = frozenset(ignored)
        self._records = self._state.load(_read, dict[str, Record]())
        self._lock = Lock()
        self._events: dict[str, _Event] = {}

    def heard(self, event: Mapping[str, str]) -> None:
        """Take note of an event of the kernel, if it says that a GPU has hung or has recovered."""
        if said := drm.wedged(event):
            folder = self._sysfs.root / said.folder
            with self._lock:
                self._events[folder.name] = _Event(identity(folder), said)

    def verdicts(self, gpus: Collection[Gpu]) -> dict[str, Verdict]:
        """Return what is wrong with each GPU, by address."""
        with self._lock:
            events, self._events = self._events, {}
        found = {gpu.address: self._verdict(gpu, events.get(gpu.address)) for gpu in gpus}
        self._state.save({"gpus": {key: asdict(one) for key, one in self._records.items()}})
        return found

    def _record(self, gpu: Gpu) -> Record:
        """Return what is remembered of a GPU since the driver was bound to it."""
        known = self._records.setdefault(gpu.address, Record(gpu.identity))
        if gpu.identity not in (known.identity, 0):
            known = self._records[gpu.address] = Record(gpu.identity)
        return known

    def _verdict(self, gpu: Gpu, event: _Event | None) -> Verdict:
        record, found = self._record(gpu), Verdict()
        if event and event.identity != record.identity:
            event = None  # the driver was bound anew since
        if event:
            record.wedged = "" if event.said.is_recovered else event.said.ways
        if gpu.in_reset:
            found.certain.append(gpu.in_reset)
        if record.wedged:
            found.certain.append(f"wedged: its driver asks for {record.wedged}")
        for block, (errors, corrected) in self._counts(gpu, found).items():
            found.corrected += corrected
            found.uncorrected += errors
            known = record.uncorrected.setdefault(block, errors)
            if errors < known or (event and not record.wedged):
                known = record.uncorrected[block] = errors
            if errors > known:
                found.certain.append(f"{block}: {errors - known} uncorrectable errors")
        found.certain += self._bad_pages(gpu, found)
        return found

    def _counts(self, gpu: Gpu, found: Verdict) -> dict[str, tuple[int, int]]:
        """Return the errors of each block, uncorrectable and corrected, of those that say it."""
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

    def _bad_pages(self, gpu: Gpu, found: Verdict) -> Iterator[str]:
        text = self._text(gpu.folder / "ras/gpu_vram_bad_pages", found)
        if bad := len(_BAD_PAGE.findall(text)):
            yield f"{bad} bad memory pages could not be taken out of use"


def _read(document: Mapping[str, Any]) -> dict[str, Record]:
    return {
        str(address): Record(
            int(one["identity"]),
            {str(block): int(count) for block, count in one["uncorrected"].items()},
            str(one["wedged"]),
        )
        for address, one in document["gpus"].items()
    }
