"""One look at all GPUs through NVML. One that is dead or odd costs no other one."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Final

from deviceplugin_gpu.host import pci_bus
from deviceplugin_gpu.nvml import api, mig
from deviceplugin_gpu.nvml.api import Handle, NvmlError, ask, call
from deviceplugin_gpu.nvml.unidentified_gpus import UnidentifiedGpu, unidentified
from deviceplugin_gpu.snapshot import Gpu, Link, Path, Snapshot

log = logging.getLogger(__name__)

_DISPLAYS: Final = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""Models that are there for a screen only."""
_NOT_REMAPPED: Final = "remapping a broken memory row failed: contact support"
_TOO_SLOW: Final = "NVML is too slow: there was no time to ask it of this GPU"
_NEAREST: Final = Path.INTERNAL
Links = Mapping[tuple[str, str], Link]


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look found: the snapshot, and the handles of GPUs that can be asked, by UUID."""

    snapshot: Snapshot
    handles: Mapping[str, Handle]
    unidentified: tuple[UnidentifiedGpu, ...]
    """GPUs that have no UUID."""

    needs_reset: Mapping[str, bool]
    """What the driver advises, by UUID, of GPUs of which it says anything."""

    @property
    def is_troubled(self) -> bool:
        """Whether a GPU could not be read."""
        problems = {gpu.problem for gpu in self.snapshot.gpus}
        listed = any(one.index is not None for one in self.unidentified)
        return listed or bool(problems - {"", _NOT_REMAPPED})


def look(
    sysfs: FilePath,
    before: Sequence[Gpu],
    links: Links | None,
    is_late: Callable[[], bool] = lambda: False,
) -> Sight:
    """Return all GPUs that are here now, and those of ``before`` that cannot be read any more.

    ``links`` are taken instead of asking for them, where they are given and the GPUs are still the
    same ones. GPUs and links that are to be asked when it ``is_late`` are left for the next look,
    so that one where each call takes seconds ends too.

    Raises:
        NvmlError: Nothing can be told at all.
    """
    count = call("nvmlDeviceGetCount")
    found: list[Gpu] = []
    handles: dict[str, Handle] = {}
    unknown: list[tuple[int, str]] = []
    addresses: set[str] = set()
    for index in range(count):
        if is_late():
            unknown.append((index, _TOO_SLOW))
            continue
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            uuid = call("nvmlDeviceGetUUID", handle)
        except NvmlError as error:
            unknown.append((index, str(error)))
            continue
        gpu = _gpu(index, uuid, handle, sysfs, before)
        addresses.add(gpu.pci)
        if gpu.name not in _DISPLAYS:
            found.append(gpu)
            handles[uuid] = handle
    cards = pci_bus.cards(sysfs)
    missing = _missing(before, {*handles}, unknown, cards)
    found += missing
    gpus = tuple(sorted(found, key=lambda gpu: (gpu.index, gpu.uuid)))
    if links is None or not _covers(links, handles):
        links = _links(gpus, handles, is_late)
    version = _told("", "nvmlSystemGetDriverVersion")
    cuda = _told(0, "nvmlSystemGetCudaDriverVersion_v2")
    snapshot = Snapshot(gpus, links, version, (cuda // 1000, cuda % 1000 // 10))
    advice = {uuid: _advice(handle) for uuid, handle in handles.items()}
    needs_reset = {uuid: needed for uuid, needed in advice.items() if needed is not None}
    addresses.update(gpu.pci for gpu in missing)
    unread = unidentified(unknown[len(missing) :], cards, addresses)
    return Sight(snapshot, handles, unread, needs_reset)


def _gpu(index: int, uuid: str, handle: Handle, sysfs: FilePath, before: Sequence[Gpu]) -> Gpu:
    try:
        return _read(index, uuid, handle, sysfs)
    except NvmlError as error:
        known = next((gpu for gpu in before if gpu.uuid == uuid), None)
        return replace(known or _sketch(index, uuid, handle), index=index, problem=str(error))


def _sketch(index: int, uuid: str, handle: Handle) -> Gpu:
    """Return what decides on the resource of a GPU that cannot be read, as far as it is told."""
    return Gpu(
        index,
        uuid,
        name=_told("", "nvmlDeviceGetName", handle),
        pci=_pci(_told(None, "nvmlDeviceGetPciInfo_v3", handle)),
        mig_enabled=bool(_told((0, 0), "nvmlDeviceGetMigMode", handle)[0]),
    )


def _read(index: int, uuid: str, handle: Handle, sysfs: FilePath) -> Gpu:
    memory = ask(None, "nvmlDeviceGetMemoryInfo", handle)
    pci = _pci(ask(None, "nvmlDeviceGetPciInfo_v3", handle))
    mig_enabled = bool(ask((0, 0), "nvmlDeviceGetMigMode", handle)[0])
    total = 0 if memory is None else int(memory.total)
    rows = ask((0, 0, False, False), "nvmlDeviceGetRemappedRows", handle)
    return Gpu(
        index=index,
        uuid=uuid,
        name=ask("", "nvmlDeviceGetName", handle),
        minor=ask(None, "nvmlDeviceGetMinorNumber", handle),
        pci=pci,
        numa=_numa(sysfs / "bus/pci/devices" / pci / "numa_node") if pci else None,
        memory=total,
        compute=ask((0, 0), "nvmlDeviceGetCudaComputeCapability", handle),
        mig_enabled=mig_enabled,
        migs=mig.read(handle, total) if mig_enabled else (),
        problem=_NOT_REMAPPED if rows[3] else "",
    )


def _told(default: Any, function: str, *arguments: object) -> Any:
    """Return what ``function`` of NVML does, or ``default``: no GPU is worse for not knowing it."""
    try:
        return call(function, *arguments)
    except NvmlError:
        return default


def _advice(handle: Handle) -> bool | None:
    """Return whether the driver calls for a reset; None where it says nothing."""
    try:
        (field,) = call("nvmlDeviceGetFieldValues", handle, [api.RECOVERY_ACTION])
    except NvmlError:
        return None
    if field.nvmlReturn:
        return None
    return int(field.value.uiVal) not in api.NO_RECOVERY_NEEDED


def _missing(
    before: Sequence[Gpu],
    present: set[str],
    unknown: Sequence[tuple[int, str]],
    cards: Collection[str],
) -> list[Gpu]:
    """Return GPUs that are there, cannot be asked who they are, and were seen ``before``.

    The one that had the index before is the most likely one; none that has left the bus is.
    """
    gone = {gpu.uuid for gpu in before if cards and gpu.pci and gpu.pci not in cards}
    left = {gpu.index: gpu for gpu in before if gpu.uuid not in present | gone}
    found = []
    for index, reason in unknown:
        likely = index if index in left else min(left, default=None)
        if likely is not None:
            found.append(replace(left.pop(likely), problem=reason))
    return found


def _pci(info: Any) -> str:
    """Return the address as sysfs writes it: NVML gives the domain eight digits."""
    if info is None:
        return ""
    raw = info.busId
    text = (raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)).lower()
    domain, _, rest = text.partition(":")
    return f"{domain.lstrip('0').zfill(4)}:{rest}" if rest else text


def _numa(path: FilePath) -> int | None:
    try:
        node = int(path.read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _covers(links: Links, handles: Mapping[str, Handle]) -> bool:
    return all((a, b) in links for a in handles for b in handles if a != b)


def _links(
    gpus: Sequence[Gpu], handles: Mapping[str, Handle], is_late: Callable[[], bool]
) -> dict[tuple[str, str], Link]:
    """Return how near all pairs are; what cannot be told counts as far."""
    remotes = {}
    for gpu in gpus:
        if gpu.uuid in handles and not is_late():
            remotes[gpu.uuid] = _remotes(handles[gpu.uuid], gpus, is_late)
    found: dict[tuple[str, str], Link] = {}
    for a in remotes:
        for b in remotes:
            if a < b and not is_late():
                direct = max(remotes[a][b], remotes[b][a])
                switched = min(remotes[a][""], remotes[b][""])
                link = Link(_path(handles[a], handles[b]), direct + switched)
                found[a, b] = found[b, a] = link
    return found


def _path(a: Handle, b: Handle) -> Path:
    try:
        return Path(_NEAREST - int(call("nvmlDeviceGetTopologyCommonAncestor", a, b)))
    except (NvmlError, ValueError):
        return Path.SYSTEM


def _remotes(handle: Handle, gpus: Sequence[Gpu], is_late: Callable[[], bool]) -> Counter[str]:
    """Return the number of active NVLinks by UUID of the GPU at the other end; ``""`` a switch."""
    by_pci = {gpu.pci: gpu.uuid for gpu in gpus if gpu.pci}
    counts: Counter[str] = Counter()
    for number in range(api.MAX_LINKS):
        if is_late():
            break
        try:
            if call("nvmlDeviceGetNvLinkState", handle, number):
                remote = _pci(ask(None, "nvmlDeviceGetNvLinkRemotePciInfo", handle, number))
                kind = ask(None, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
                unlisted = "" if kind in {None, api.REMOTE_SWITCH} else "elsewhere"
                counts[by_pci.get(remote, unlisted)] += 1
        except NvmlError as error:
            if error.code in api.MISSING:
                break  # it has no more
    return counts
