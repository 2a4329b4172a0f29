"""All GPUs that NVML lists at one time. A faulty GPU does not affect the others."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit import numa
from deviceplugin_gpu import host
from deviceplugin_gpu.nvml import api, gpu_facts
from deviceplugin_gpu.nvml.api import Handle, NvmlError, Session, ask, call
from deviceplugin_gpu.nvml.gpu_facts import Questions, fabric
from deviceplugin_gpu.snapshot import NOT_REMAPPED, Gpu, Link, Nearness, Snapshot

_UNLISTED: Final = "is not known to NVML: it is lost, or hidden from this plugin"
_DRIVERLESS: Final = "has no driver"
_SEE_LOG: Final = "see the kernel's log: dmesg | grep NVRM"
_DISPLAYS: Final = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""Models that only drive a display."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_TOO_SLOW: Final = "NVML is too slow: there was no time to read this GPU"


@dataclass(frozen=True, slots=True)
class UnidentifiedGpu:
    """A GPU without a readable UUID. Its NVML index, its PCI address or both are known."""

    problem: str
    index: int | None = None
    pci: str = ""

    def __str__(self) -> str:
        index = "" if self.index is None else f" {self.index}"
        return f"GPU{index}{self.pci and f' at {self.pci}'} {self.problem}"


def unidentified(
    unread: Sequence[tuple[int, str]], cards: Mapping[str, str], named: Collection[str]
) -> tuple[UnidentifiedGpu, ...]:
    """Return GPUs that NVML cannot identify, and those that only the PCI bus has.

    ``unread`` has index and problem of the former, in NVML's order, which is that of addresses, as
    in ``cards``. ``named`` are the addresses of all identified GPUs. An empty one could be any.
    """
    absent = {} if "" in named else {a: b for a, b in cards.items() if a not in named}
    lost = [address for address, driver in absent.items() if driver == host.NVIDIA]
    others = {a: b for a, b in absent.items() if b != host.NVIDIA}
    if len(lost) == len(unread):
        pairs = zip(unread, lost, strict=True)
        found = [UnidentifiedGpu(f"cannot be read: {why}", index, at) for (index, why), at in pairs]
    elif len(lost) < len(unread):
        found = [UnidentifiedGpu(f"cannot be read: {why}", index) for index, why in unread]
    else:
        said = "; ".join(dict.fromkeys(why for _, why in unread))
        problem = f"cannot be read: {said}" if said else f"{_UNLISTED}: {_SEE_LOG}"
        found = [UnidentifiedGpu(problem, pci=address) for address in lost]
    return (
        *found,
        *(UnidentifiedGpu(_not_served(driver), pci=address) for address, driver in others.items()),
    )


def _not_served(driver: str) -> str:
    return f"has the driver {driver}, not {host.NVIDIA}" if driver else f"{_DRIVERLESS}: {_SEE_LOG}"


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The snapshot, and the handles of readable GPUs by UUID."""

    snapshot: Snapshot
    handles: Mapping[str, Handle]
    unidentified: tuple[UnidentifiedGpu, ...]
    """GPUs that have no UUID."""

    needs_reset: Mapping[str, bool]
    """Whether the driver calls for a reset, by UUID, if it says so at all."""

    energy: Mapping[str, int]
    """The millijoules used since the driver was loaded or the GPU was reset, by UUID, if known."""

    unanswered: tuple[str, ...]
    """Failed queries about a GPU, with the error. The GPU can be used without the answers."""

    @property
    def is_troubled(self) -> bool:
        """Whether a GPU could not be read."""
        listed = any(one.index is not None for one in self.unidentified)
        return listed or not all(gpu.answers for gpu in self.snapshot.gpus)


def enumerate_gpus(
    session: Session, sysfs: Path, before: Snapshot, is_late: Callable[[], bool] = lambda: False
) -> Enumeration:
    """Return all GPUs that exist now, and those of ``before`` that can no longer be read.

    Those that are held are not among them, and are not asked for.

    Links are reused from ``before`` if the GPUs are the same, and so are versions that the driver
    does not report this time. Once ``is_late``, the remaining GPUs and links are left for the next
    time, so that an enumeration ends even if each call takes seconds.
    """
    held, places = session.held, session.places()
    found: list[Gpu] = []
    handles: dict[str, Handle] = {}
    unknown: list[tuple[int, str]] = []
    unanswered: list[str] = []
    addresses = {*held}
    for place in places:
        index = place.number
        if is_late():
            unknown.append((index, _TOO_SLOW))
            continue
        try:
            handle = place.handle()
            uuid = call("nvmlDeviceGetUUID", handle)
            index = _value(index, "nvmlDeviceGetIndex", handle) if place.address else index
        except NvmlError as error:
            unknown.append((index, str(error)))
            continue
        known = next((gpu for gpu in before.gpus if gpu.uuid == uuid), None)
        gpu = _gpu(index, Questions(uuid, handle, unanswered), sysfs, known)
        if gpu.pci or not gpu.is_integrated:
            addresses.add(gpu.pci)
        if gpu.name not in _DISPLAYS:
            found.append(gpu)
            handles[uuid] = handle
    cards = host.cards(sysfs)
    earlier = [gpu for gpu in before.gpus if gpu.pci not in held]
    found += (missing := _missing(earlier, {*handles}, unknown, cards))
    gpus = tuple(sorted(found, key=lambda gpu: (gpu.index, gpu.uuid)))
    is_covered = all((a, b) in before.links for a in handles for b in handles if a != b)
    links = before.links if is_covered else _links(gpus, handles, is_late)
    version = _value(before.driver, "nvmlSystemGetDriverVersion")
    cuda = _value(None, "nvmlSystemGetCudaDriverVersion_v2")
    newest = before.cuda if cuda is None else (cuda // 1000, cuda % 1000 // 10)
    snapshot = Snapshot(gpus, links, version, newest)
    addresses.update(gpu.pci for gpu in missing)
    unread = unidentified(unknown[len(missing) :], cards, addresses)
    needs_reset = _answered(handles, _advice)
    energy = _answered(handles, partial(_value, None, "nvmlDeviceGetTotalEnergyConsumption"))
    return Enumeration(snapshot, handles, unread, needs_reset, energy, tuple(unanswered))


def _gpu(index: int, asked: Questions, sysfs: Path, known: Gpu | None) -> Gpu:
    sketch = Gpu(index, asked.uuid)
    try:
        return _read(asked, sysfs, replace(known or sketch, index=index))
    except NvmlError as error:
        seen = known or _sketch(sketch, asked.handle)
        return replace(seen, index=index, problem=str(error))


def _sketch(gpu: Gpu, handle: Handle) -> Gpu:
    """Return what is readable of the fields that decide the resource of an unreadable GPU."""
    return replace(
        gpu,
        name=_value("", "nvmlDeviceGetName", handle),
        pci=_pci(_value(None, "nvmlDeviceGetPciInfo_v3", handle)),
        mig_enabled=bool(_value((0, 0), "nvmlDeviceGetMigMode", handle)[0]),
    )


def _read(asked: Questions, sysfs: Path, known: Gpu) -> Gpu:
    """Return the GPU as it is now. Fields that cannot be read keep the value of ``known``."""
    handle = asked.handle
    info = asked.ask(None, "nvmlDeviceGetPciInfo_v3")
    pci = known.pci if info is None else _pci(info)
    memory = asked.ask(None, "nvmlDeviceGetMemoryInfo")
    total = known.memory if memory is None else int(memory.total)
    mig_mode = ask((None, None), "nvmlDeviceGetMigMode", handle)[0]
    migs = {mig.uuid: mig for mig in known.migs}
    mode = asked.ask(None, "nvmlDeviceGetVirtualizationMode")
    _, _, is_pending, has_failed = asked.ask((0, 0, 0, 0), "nvmlDeviceGetRemappedRows")
    return Gpu(
        index=known.index,
        uuid=known.uuid,
        name=str(asked.ask(known.name, "nvmlDeviceGetName")),
        minor=asked.ask(known.minor, "nvmlDeviceGetMinorNumber"),
        pci=pci,
        numa=numa.node(f"bus/pci/devices/{pci}", sysfs=sysfs) if pci else None,
        memory=total,
        compute=asked.ask(known.compute, "nvmlDeviceGetCudaComputeCapability"),
        **gpu_facts.constants(asked, known),
        mig_capable=mig_mode is not None,
        mig_enabled=bool(mig_mode),
        migs=gpu_facts.mig_devices(asked, total, migs) if mig_mode else (),
        compute_mode=asked.ask(known.compute_mode, "nvmlDeviceGetComputeMode"),
        is_virtual=mode == api.VGPU,
        fabric=fabric(handle),
        problem=NOT_REMAPPED if has_failed else "",
        wear=tuple(gpu_facts.wear(asked, is_pending=is_pending)),
        slowdown=gpu_facts.slowdown(asked),
        license=gpu_facts.license_of(asked, mode, known.license),
    )


def _value(default: Any, function: str, *arguments: object) -> Any:
    """Return the result of NVML's ``function``, or ``default`` if it fails for any reason."""
    try:
        return call(function, *arguments)
    except NvmlError:
        return default


def _answered(handles: Mapping[str, Handle], ask: Callable[[Handle], Any]) -> dict[str, Any]:
    return {uuid: one for uuid, handle in handles.items() if (one := ask(handle)) is not None}


def _advice(handle: Handle) -> bool | None:
    """Return whether the driver calls for a reset; None if it does not say."""
    (field,) = _value((None,), "nvmlDeviceGetFieldValues", handle, [api.RECOVERY_ACTION])
    if field is None or field.nvmlReturn:
        return None
    return int(field.value.uiVal) not in api.NO_RECOVERY_NEEDED


def _missing(
    before: Sequence[Gpu],
    present: set[str],
    unknown: Sequence[tuple[int, str]],
    cards: Collection[str],
) -> list[Gpu]:
    """Return GPUs of ``before`` that still exist, but cannot be identified now.

    An unidentified GPU most likely is the one that had its index before. It cannot be one that has
    left the bus.
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
    """Return the address as sysfs writes it.

    NVML writes the domain with eight digits. Older versions leave the string empty.
    """
    if info is None:
        return ""
    text = gpu_facts.text(info.busId).lower()
    if not _ADDRESS.fullmatch(text):
        return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
    domain, _, rest = text.partition(":")
    return f"{domain.lstrip('0').zfill(4)}:{rest}"


def _links(
    gpus: Sequence[Gpu], handles: Mapping[str, Handle], is_late: Callable[[], bool]
) -> dict[tuple[str, str], Link]:
    """Return how near all pairs are. Unknown pairs count as far."""
    known = [gpu.uuid for gpu in gpus if gpu.uuid in handles]
    remotes = {one: _remotes(handles[one], gpus, is_late) for one in known if not is_late()}
    found: dict[tuple[str, str], Link] = {}
    for a in remotes:
        for b in remotes:
            if a < b and not is_late():
                direct = max(remotes[a][b], remotes[b][a])
                switched = min(remotes[a][""], remotes[b][""])
                link = Link(_path(handles[a], handles[b]), direct + switched)
                found[a, b] = found[b, a] = link
    return found


def _path(a: Handle, b: Handle) -> Nearness:
    try:
        return Nearness(Nearness.INTERNAL - int(call("nvmlDeviceGetTopologyCommonAncestor", a, b)))
    except (NvmlError, ValueError):
        return Nearness.SYSTEM


def _remotes(handle: Handle, gpus: Sequence[Gpu], is_late: Callable[[], bool]) -> Counter[str]:
    """Return the number of active NVLinks by UUID of the other GPU, or ``""`` for a switch."""
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
