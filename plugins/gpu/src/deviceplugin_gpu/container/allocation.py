"""What a container gets for its devices: variables, mounts, annotations, CDI names, and MPS."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.mps.shares import memory

_SHM: Final = "/dev/shm"  # noqa: S108 - where MPS clients look for it
_MIB: Final = 1 << 20

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
DEVICES: Final = "/var/run/nvidia-container-devices"
"""Where the runtime looks for mounts that name devices."""
_NOTHING: Final[Mapping[str, Any]] = {}
_RESOURCE: Final = attrgetter("resource")
_NULL: Final = "/dev/null"
_ANNOTATION: Final = "nvidia-device-plugin_"
_MODES: Final = ("gdrcopy", "gds", "mofed")


def _mps_client(units: Sequence[Unit], root: Path, name_of: Callable[[Unit], str]) -> dp.Allocation:
    """Return what a container needs to be a client, and the limits that it gets.

    Each replica of a device may use an equal part of its memory and of its threads.
    """
    names = {name_of(unit) for unit in units}
    if len(names) > 1:
        uuids = ", ".join(sorted({unit.uuid for unit in units}))
        raise dp.AllocationError(f"one container cannot use several MPS control daemons: {uuids}")
    pipe, replicas = f"{names.pop()}/pipe", units[0].replicas
    devices = {unit.uuid: unit for unit in units}
    counts = {uuid: sum(unit.uuid == uuid for unit in units) for uuid in devices}
    sizes = [memory(unit) * counts[uuid] // _MIB for uuid, unit in devices.items()]
    envs = {
        "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{pipe}",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(counts.values()) * 100 // replicas),
    }
    if all(sizes):
        limits = (f"{ordinal}={size}M" for ordinal, size in enumerate(sizes))
        envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    mounts = [dp.Mount(str(root / pipe), f"/mps/{pipe}"), dp.Mount(str(root / "shm"), _SHM)]
    return dp.Allocation(envs=envs, mounts=mounts)


def allocation(
    units: Sequence[Unit],
    settings: GpuSettings,
    *,
    nodes: Mapping[str, Sequence[dp.DeviceNode]] = _NOTHING,
    cdi_names: Mapping[str, str] = _NOTHING,
    cdi_others: Sequence[str] = (),
    mps_name: Callable[[Unit], str] = _RESOURCE,
) -> dp.Allocation:
    """Return what a container with ``units`` gets. The same units have the same result.

    Replicas of one device are listed once. Device nodes and qualified CDI names are by id, for
    those with any. Every container gets ``cdi_others``. ``mps_name`` is that of a unit's daemon.
    AllocationError if they cannot be used together.
    """
    ordered = sorted(units, key=lambda unit: unit.key)
    by_index = settings.device_id_strategy == "index"
    names = list(dict.fromkeys(_name(unit, by_index=by_index) for unit in ordered))
    modes = {f"NVIDIA_{mode.upper()}": "enabled" for mode in enabled_modes(settings)}
    found = dp.Allocation(envs=modes)
    if settings.device_list_strategy.plain:
        found += _plain(names, settings)
        given = (dp.Allocation(nodes=nodes.get(unit.id, ())) for unit in ordered)
        found += sum(given, dp.Allocation())
    if settings.device_list_strategy.cdi:
        qualified = [cdi_names[unit.id] for unit in ordered if unit.id in cdi_names]
        found += _cdi(list(dict.fromkeys([*qualified, *cdi_others])), settings)
    if settings.sharing.mps:
        shared = [unit for unit in ordered if unit.replica is not None]
        if shared and settings.mps_root is not None:
            found += _mps_client(shared, settings.mps_root, mps_name)
    return found


def _name(unit: Unit, *, by_index: bool) -> str:
    """Return what the runtime knows a device by."""
    return unit.index if by_index or unit.gpu.is_integrated else unit.uuid


def enabled_modes(settings: GpuSettings) -> list[str]:
    """Return which of gdrcopy, gds and mofed are enabled."""
    return [mode for mode in _MODES if getattr(settings, f"{mode}_enabled")]


def _plain(names: Sequence[str], settings: GpuSettings) -> dp.Allocation:
    channels = [str(channel) for channel in settings.imex_channel_ids]
    found = dp.Allocation()
    if "envvar" in settings.device_list_strategy:
        envs = {VISIBLE: ",".join(names)}
        found += dp.Allocation(
            envs=envs | ({"NVIDIA_IMEX_CHANNELS": ",".join(channels)} if channels else {})
        )
    if "volume-mounts" in settings.device_list_strategy:
        targets = [*names, *(f"imex/{channel}" for channel in channels)]
        mounts = [dp.Mount(_NULL, f"{DEVICES}/{target}") for target in targets]
        found += dp.Allocation(mounts=mounts, envs={VISIBLE: DEVICES})
    return found


def _cdi(names: Sequence[str], settings: GpuSettings) -> dp.Allocation:
    found = dp.Allocation(cdi_names=names if "cdi-cri" in settings.device_list_strategy else ())
    if "cdi-annotations" in settings.device_list_strategy:
        from hashlib import sha256  # it loads OpenSSL

        text = ",".join(names)
        # The same for the same devices, and different for the container's other resources.
        key = sha256(text.encode()).hexdigest()[:32]
        annotation = f"{settings.cdi_annotation_prefix}{_ANNOTATION}{key}"
        found += dp.Allocation(annotations={annotation: text})
    return found
