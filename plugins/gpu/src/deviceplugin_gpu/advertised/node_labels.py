"""The node's labels about its GPUs, as a file that Node Feature Discovery reads.

The labels are those of NVIDIA's GPU feature discovery, which describes the last one of several
models that it meets. Here it is the model with the most GPUs, or the first of equals. In a virtual
machine they also say which driver the hypervisor has, by the PCI configuration of the GPUs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Final

from deviceplugin.kit import pci
from deviceplugin.kit.hardware import Tree
from deviceplugin.kit.labels import clean
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_gpu import host
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot

_NVIDIA: Final = "0x10de"
_WHOLE: Final = 256
_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_FIRST: Final = 0x34
_HEADER: Final = 0x40
"""Bytes before the first capability."""
_VENDOR_SPECIFIC: Final = 0x09
_SIGNATURE: Final = b"VF"
_RECORDS: Final = 5
_HOST_DRIVER: Final = 0
_TEXT: Final = 10
"""Sizes in bytes of the driver's version and of its branch, which follows."""

_DOMAIN: Final = "nvidia.com/"
TIMESTAMP: Final = f"{_DOMAIN}gfd.timestamp"
"""The label that says when the others last changed."""
_MIB: Final = 1 << 20
_MODES: Final = {"030000": "graphics", "030200": "compute"}
_ENGINES: Final = ("copy", "decoder", "encoder", "jpeg", "ofa")


def _of_hypervisor(sys: Path) -> dict[str, str]:
    """Return the labels without domain; none if no GPU's configuration can be read."""
    capabilities = []
    seen = False
    for config in _configurations(sys):
        seen = True
        capabilities += [one for one in _vendor_specific(config) if one[3:5] == _SIGNATURE]
    if not seen:
        return {}
    found = {"vgpu.present": str(bool(capabilities)).lower()}
    for capability in capabilities:
        record = _hypervisor_record(capability)
        if record is not None:
            version, branch = record[:_TEXT], record[_TEXT : 2 * _TEXT]
            found["vgpu.host-driver-version"] = _text(version)
            found["vgpu.host-driver-branch"] = _text(branch)
    return found


def _configurations(sys: Path) -> Iterator[bytes]:
    for device in host.matches(sys / "bus/pci/devices", "*"):
        if host.text(device / "vendor") == _NVIDIA:
            with suppress(OSError):
                config = (device / "config").read_bytes()
                if len(config) >= _WHOLE:
                    yield config[:_WHOLE]


def _vendor_specific(config: bytes) -> Iterator[bytes]:
    """Yield such capabilities. A broken or circular chain ends the iteration."""
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return
    place, visited = config[_FIRST], set[int]()
    while _HEADER <= place <= _WHOLE - 3 and place not in visited:
        visited.add(place)
        number, following, length = config[place : place + 3]
        if number == _VENDOR_SPECIFIC:
            yield config[place : place + length]
        place = following


def _hypervisor_record(capability: bytes) -> bytes | None:
    """Return the data of the record about the host's driver."""
    place = _RECORDS
    while place + 1 < len(capability):
        number, length = capability[place : place + 2]
        data = capability[place + 2 :]
        if number == _HOST_DRIVER:
            return data if len(data) >= 2 * _TEXT else None
        if not length:
            return None
        place += length
    return None


def _text(raw: bytes) -> str:
    return raw.strip(b"\0").decode("ascii", errors="replace")


def labels(
    snapshot: Snapshot,
    units: Sequence[Unit],
    settings: GpuSettings,
    sys: Path,
) -> dict[str, str]:
    """Return all labels but the time; none for a node without GPUs."""
    if not snapshot.gpus:
        return {}
    single = settings.mig_strategy == "single"
    whole = [unit.gpu for unit in units if unit.mig is None]
    model = _foremost(whole or [unit.gpu for unit in units] or snapshot.gpus)
    found = _versions(snapshot) | _of_node(snapshot, settings, model, sys)
    if single and any(gpu.mig_enabled for gpu in snapshot.gpus):
        found |= _single([unit for unit in units if unit.mig], model, settings)
    elif units:
        found |= _gpus(units, model, settings)
    if not single:
        found |= _mixed([unit for unit in units if unit.mig], settings)
    named = {f"{_DOMAIN}{name}": clean(str(value)) for name, value in found.items()}
    return {name: value for name, value in sorted(named.items()) if value}


def _foremost(gpus: Sequence[Gpu]) -> Gpu:
    """Return the first GPU of the model that has the most."""
    counts = Counter(gpu.name for gpu in {gpu.uuid: gpu for gpu in gpus}.values())
    return min(gpus, key=lambda gpu: (-counts[gpu.name], gpu.index))


def _versions(snapshot: Snapshot) -> dict[str, object]:
    if not snapshot.driver:
        return {}
    major, minor, revision = [*snapshot.driver.split("."), "", ""][:3]
    found: dict[str, object] = {
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver-version.full": snapshot.driver,
    }
    if snapshot.cuda != (0, 0):
        cuda_major, cuda_minor = snapshot.cuda
        found |= {
            "cuda.runtime.major": cuda_major,
            "cuda.runtime.minor": cuda_minor,
            "cuda.runtime-version.major": cuda_major,
            "cuda.runtime-version.minor": cuda_minor,
            "cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
        }
    return found


def _of_node(snapshot: Snapshot, settings: GpuSettings, model: Gpu, sys: Path) -> dict[str, object]:
    has_mig = any(gpu.mig_enabled for gpu in snapshot.gpus)
    capable = any(gpu.mig_capable for gpu in snapshot.gpus)
    tree = Tree(Sysfs(sys))
    card = pci.at(tree, model.pci)
    found: dict[str, object] = {
        "gpu.machine": _machine(tree, sys),
        "gpu.mode": _MODES.get(card.pci_class if card else "", "unknown"),
        "mig.capable": str(capable).lower(),
        "mps.capable": str(settings.sharing.mps and not has_mig).lower(),
    }
    if settings.mig_strategy != "none":
        found["mig.strategy"] = settings.mig_strategy
    cliques = {gpu.fabric for gpu in snapshot.gpus if gpu.fabric}
    if len(cliques) == 1:
        found["gpu.clique"] = cliques.pop()
    return found | _of_hypervisor(sys)


def _machine(tree: Tree, sys: Path) -> str:
    """Return the machine's name by its firmware, on a Jetson by its device tree."""
    places = ("class/dmi/id/product_name", "firmware/devicetree/base/model")
    names = (tree.text(f"{sys}/{place}").strip("\0\n ") for place in places)
    return next(filter(None, names), "")


def _gpus(units: Sequence[Unit], model: Gpu, settings: GpuSettings) -> dict[str, object]:
    """Return the labels of GPUs, also of those whose MIG devices have labels of their own."""
    first = next(unit for unit in units if unit.gpu.uuid == model.uuid)
    if first.mig is None:
        own = _of_resource("gpu", units, first, settings)
    else:
        own = {"gpu.product": model.name, "gpu.replicas": 0, "gpu.sharing-strategy": "none"}
    return {
        **own,
        "gpu.count": len({unit.gpu.uuid for unit in units}),
        "gpu.memory": model.memory // _MIB or "",
        **_architecture(model),
    }


def _architecture(gpu: Gpu) -> dict[str, object]:
    if gpu.compute == (0, 0):
        return {}
    major, minor = gpu.compute
    return {
        "gpu.family": gpu.family or "undefined",
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
    }


def _single(units: Sequence[Unit], model: Gpu, settings: GpuSettings) -> dict[str, object]:
    if not units:
        return {
            **_architecture(model),
            "gpu.product": f"{model.name}-MIG-INVALID",
            **dict.fromkeys(("gpu.count", "gpu.replicas", "gpu.memory"), 0),
        }
    return {**_architecture(units[0].gpu), **_migs("gpu", units, settings)}


def _mixed(units: Iterable[Unit], settings: GpuSettings) -> dict[str, object]:
    found: dict[str, object] = {}
    ordered = sorted(units, key=lambda unit: (_profile(unit), unit.key))
    for profile, group in groupby(ordered, key=_profile):
        found |= _migs(f"mig-{profile}", [*group], settings)
    return found


def _profile(unit: Unit) -> str:
    return unit.mig.profile.replace("+", ".") if unit.mig else ""


def _migs(prefix: str, units: Sequence[Unit], settings: GpuSettings) -> dict[str, object]:
    model = _foremost([unit.gpu for unit in units])
    first = next(unit for unit in units if unit.gpu.uuid == model.uuid)
    mig = first.mig or Mig("", 0, 0, 0)
    return {
        **_of_resource(prefix, units, first, settings),
        f"{prefix}.memory": mig.memory // _MIB,
        f"{prefix}.multiprocessors": mig.multiprocessors,
        f"{prefix}.slices.gi": mig.slices,
        f"{prefix}.slices.ci": mig.compute_slices,
        **{f"{prefix}.engines.{name}": mig.engines.get(name, 0) for name in _ENGINES},
    }


def _of_resource(
    prefix: str, units: Sequence[Unit], first: Unit, settings: GpuSettings
) -> dict[str, object]:
    """Return the labels that GPUs and MIG devices have in common. ``first`` is described."""
    is_shared = first.replica is not None
    usual = "gpu" if first.mig is None or prefix == "gpu" else f"mig-{_profile(first)}"
    is_renamed = first.resource != f"{_DOMAIN}{usual}"
    parts = [first.gpu.name]
    parts += ["MIG", _profile(first)] if first.mig else []
    parts += ["SHARED"] if is_shared and not is_renamed else []
    kind = "mps" if settings.sharing.mps else "time-slicing"
    return {
        f"{prefix}.product": "-".join(parts),
        f"{prefix}.count": len({unit.uuid for unit in units}),
        f"{prefix}.replicas": first.replicas,
        f"{prefix}.sharing-strategy": kind if is_shared else "none",
    }
