"""What GPUs are advertised as: which devices, under which resource, shared or not."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from deviceplugin.kit.naming import Naming, matches
from deviceplugin.kit.sharing import excess, share_id
from deviceplugin_gpu.configuration.setting_kinds import DOMAIN, Share, Sharing
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot

_INDEX: Final = re.compile(r"(\d+)(?::(\d+))?", re.ASCII)
_PCI: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII)

GPU: Final = f"{DOMAIN}/gpu"


def is_by_model(selector: str) -> bool:
    """Return whether what ``selector`` matches depends on the model of a GPU."""
    others = _INDEX.fullmatch(selector), _PCI.fullmatch(selector.lower())
    return not (any(others) or selector.lower().startswith(("gpu-", "mig-")))


def names_gpu(selector: str, gpu: Gpu) -> bool:
    """Return whether ``selector`` matches ``gpu``.

    It is an index (``0``), a UUID (``GPU-...``), a PCI address (``0000:3b:00.0``, ``3b:00.0``), or
    a pattern of the model with ``*`` and ``?`` (``*A100*``). Case is ignored.
    """
    if index := _INDEX.fullmatch(selector):
        return index[2] is None and gpu.index == int(index[1])
    selector = selector.lower()
    if address := _PCI.fullmatch(selector):
        domain = (address[1] or "").lstrip("0").zfill(4)
        return f"{domain}:{address[2]}" == gpu.pci
    return selector == gpu.uuid.lower() or matches(selector, gpu.name)


def names_mig(selector: str, gpu: Gpu, mig: Mig) -> bool:
    """Return whether ``selector`` matches ``mig`` itself (``0:1``, ``MIG-...``) or its GPU."""
    index = _INDEX.fullmatch(selector)
    if index and index[2]:
        return (gpu.index, mig.index) == (int(index[1]), int(index[2]))
    return selector.lower() == mig.uuid.lower() or names_gpu(selector, gpu)


def any_names(selectors: Iterable[str], gpu: Gpu, mig: Mig | None = None) -> bool:
    """Return whether any of ``selectors`` matches the GPU, or its MIG device if one is given."""
    return any(
        names_gpu(selector, gpu) if mig is None else names_mig(selector, gpu, mig)
        for selector in selectors
    )


@dataclass(frozen=True, slots=True)
class Unit:
    """What one id of the kubelet stands for: a GPU or a MIG device, or one replica of it."""

    resource: str
    gpu: Gpu
    mig: Mig | None = None
    replica: int | None = None
    replicas: int = 1
    """Number of replicas of the same GPU or MIG device."""

    @property
    def uuid(self) -> str:
        """UUID of the GPU or MIG device."""
        return self.mig.uuid if self.mig else self.gpu.uuid

    @property
    def id(self) -> str:
        """The kubelet's id."""
        return self.uuid if self.replica is None else share_id(self.uuid, self.replica)

    @property
    def is_planned(self) -> bool:
        """Whether it is a MIG device that does not exist, and can be made for a claim."""
        return self.mig is not None and self.mig.index < 0

    @property
    def index(self) -> str:
        """Index of the GPU, and of the MIG device after a colon."""
        return f"{self.gpu.index}:{self.mig.index}" if self.mig else str(self.gpu.index)

    @property
    def key(self) -> tuple[int, int, int, str]:
        """Sorts by GPU, MIG device and replica, in numeric order."""
        index = self.mig.index if self.mig else -1
        return self.gpu.index, index, -1 if self.replica is None else self.replica, self.uuid


@dataclass(slots=True)
class Advertised:
    """All units, in order, and a warning for each GPU or MIG device that was skipped."""

    units: list[Unit] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def advertise(snapshot: Snapshot, settings: GpuSettings) -> Advertised:
    """Return what the GPUs of ``snapshot`` are advertised as."""
    made = Advertised()
    by_model = any(map(is_by_model, (*settings.include, *settings.exclude)))
    known = [gpu for gpu in snapshot.gpus if not by_model or _is_known(gpu, made.warnings)]
    gpus = [gpu for gpu in known if is_selected(gpu, settings)]
    make = {"none": _whole, "single": _single, "mixed": _mixed}[settings.mig_strategy]
    for unit in make(gpus, settings.resources, made.warnings):
        if unit.mig is None or not any_names(settings.exclude, unit.gpu, unit.mig):
            made.units.append(unit)
    if known and not gpus:
        count = len(snapshot.gpus)
        made.warnings.append(f"include and exclude choose none of the {count} GPUs that are here")
    made.units = sorted(_shared(made, settings.sharing), key=lambda unit: unit.key)
    return made


def is_selected(gpu: Gpu, settings: GpuSettings) -> bool:
    """Return whether ``include`` and ``exclude`` leave this GPU."""
    included = not settings.include or any_names(settings.include, gpu)
    return included and not any_names(settings.exclude, gpu)


def _is_known(gpu: Gpu, warnings: list[str]) -> bool:
    """Return whether the model of a GPU is known."""
    if not gpu.name:
        why = gpu.problem or "the driver does not answer"
        warnings.append(f"GPU {gpu.uuid} is skipped: its model cannot be read: {why}")
    return bool(gpu.name)


def _whole(gpus: Iterable[Gpu], naming: Naming, warnings: list[str]) -> Iterable[Unit]:
    for gpu in gpus:
        if not naming.gpus or _is_known(gpu, warnings):
            yield Unit(naming.gpu([gpu.name], GPU), gpu)


def _single(gpus: Sequence[Gpu], naming: Naming, warnings: list[str]) -> Iterable[Unit]:
    if not any(gpu.mig_enabled for gpu in gpus):
        yield from _whole(gpus, naming, warnings)
        return
    counts = Counter(mig.profile for gpu in gpus for mig in gpu.migs if mig.profile)
    order = {profile: (-count, "c." in profile, profile) for profile, count in counts.items()}
    chosen = min(order, key=order.__getitem__, default="")
    for gpu in gpus:
        if not gpu.mig_enabled:
            warnings.append(
                f"GPU {gpu.uuid} is skipped: it has no MIG devices, others have, and mig-strategy "
                "is single: use mixed"
            )
        _warn_of_empty(gpu, warnings)
        for mig in gpu.migs:
            if mig.profile == chosen:
                yield Unit(naming.part([chosen], GPU), gpu, mig)
            else:
                profile = mig.profile or "of an unknown profile"
                warnings.append(
                    f"MIG device {mig.uuid} is skipped: it is {profile}, most are {chosen}, "
                    "and mig-strategy is single: use mixed"
                )


def _mixed(gpus: Sequence[Gpu], naming: Naming, warnings: list[str]) -> Iterable[Unit]:
    yield from _whole([gpu for gpu in gpus if not gpu.mig_enabled], naming, warnings)
    for gpu in gpus:
        _warn_of_empty(gpu, warnings)
        for mig in gpu.migs:
            if resource := _mig_resource(mig, naming):
                yield Unit(resource, gpu, mig)
            elif not mig.profile:
                warnings.append(f"MIG device {mig.uuid} is skipped: its profile is unknown")
            else:
                warnings.append(
                    f"MIG device {mig.uuid} is skipped: {mig.profile} is only a part of a GPU "
                    "instance: to advertise it, name its profile in resources.mig"
                )


def _warn_of_empty(gpu: Gpu, warnings: list[str]) -> None:
    if gpu.mig_enabled and not gpu.migs:
        why = f"these cannot be read: {gpu.problem}" if gpu.problem else "it has no MIG devices"
        warnings.append(f"GPU {gpu.uuid} is skipped: MIG is enabled, and {why}")


def _mig_resource(mig: Mig, naming: Naming) -> str:
    """Return the resource of ``mig``; empty if it is not advertised."""
    if not mig.profile:
        return ""
    if name := naming.part([mig.profile]):
        return name
    is_part = 0 < mig.compute_slices < mig.slices or "c." in mig.profile
    return "" if is_part else f"{DOMAIN}/mig-{mig.profile.replace('+', '.')}"


def _shared(made: Advertised, sharing: Sharing) -> Iterable[Unit]:
    """Return replicas of shared devices, and the others unchanged."""
    shares: dict[str, Share] = {}
    for share in sharing.shares:
        own = [unit for unit in made.units if unit.resource == share.name]
        chosen = list(_chosen(own, share))
        if made.units and not chosen:
            made.warnings.append(_without_effect(share, made.units, own))
        for unit in chosen:
            shares.setdefault(unit.uuid, share)
    whole = Share("")
    plan = [(unit, shares.get(unit.uuid, whole)) for unit in made.units]
    counts: Counter[str] = Counter()
    for unit, share in plan:
        counts[share.rename or unit.resource] += share.replicas
    refused = excess(counts)
    made.warnings += refused.values()
    for unit, share in plan:
        resource, count = share.rename or unit.resource, share.replicas
        for number in range(0 if resource in refused else count):
            yield Unit(resource, unit.gpu, unit.mig, None if count == 1 else number, count)


def _without_effect(share: Share, units: Sequence[Unit], own: Sequence[Unit]) -> str:
    if own:
        chosen = ", ".join(share.devices) if isinstance(share.devices, tuple) else share.devices
        return f"sharing of {share.name} has no effect: none of its devices is {chosen}"
    names = ", ".join(sorted({unit.resource for unit in units}))
    return f"sharing of {share.name} has no effect: the resources here are {names}"


def _chosen(units: Sequence[Unit], share: Share) -> Iterable[Unit]:
    if share.devices == "all":
        return units
    if isinstance(share.devices, int):
        return sorted(units, key=lambda unit: unit.key)[: share.devices]
    selectors = share.devices
    return [unit for unit in units if any_names(selectors, unit.gpu, unit.mig)]
