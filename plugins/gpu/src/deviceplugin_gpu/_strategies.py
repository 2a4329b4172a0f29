"""What a container is told of its devices: variables, mounts, annotations and CDI names."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu import _mps
from deviceplugin_gpu._resources import Unit
from deviceplugin_gpu._settings import GpuSettings

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
DEVICES: Final = "/var/run/nvidia-container-devices"
"""Where the runtime looks for mounts that name devices."""
CDI_VENDOR: Final = "k8s.device-plugin.nvidia.com"
_NOTHING: Final = "/dev/null"
_ANNOTATION: Final = "nvidia-device-plugin_"
_MODES: Final = ("gdrcopy", "gds", "mofed")


def name(unit: Unit, settings: GpuSettings) -> str:
    """Return what the runtime is told of ``unit``."""
    return unit.index if settings.device_id_strategy == "index" else unit.uuid


def allocation(
    units: Sequence[Unit], nodes: Mapping[str, Sequence[dp.DeviceNode]], settings: GpuSettings
) -> dp.Allocation:
    """Return what a container that is given ``units`` gets: always the same for the same ones.

    ``nodes`` are the device nodes by id, for those that get any. Replicas of one device are told of
    once.
    """
    ordered = sorted(units, key=lambda unit: unit.key)
    names = list(dict.fromkeys(name(unit, settings) for unit in ordered))
    found = dp.Allocation(envs=_modes(settings))
    if settings.device_list_strategy.plain:
        found += _plain(names, settings)
        given = (dp.Allocation(nodes=nodes.get(unit.id, ())) for unit in ordered)
        found += sum(given, dp.Allocation())
    if settings.device_list_strategy.cdi:
        found += _cdi(names, settings)
    if settings.sharing.mps:
        found += _as_client(ordered, settings)
    return found


def _enabled(settings: GpuSettings) -> list[str]:
    return [mode for mode in _MODES if getattr(settings, f"{mode}_enabled")]


def _modes(settings: GpuSettings) -> dict[str, str]:
    return {f"NVIDIA_{mode.upper()}": "enabled" for mode in _enabled(settings)}


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
        mounts = [dp.Mount(_NOTHING, f"{DEVICES}/{target}") for target in targets]
        found += dp.Allocation(mounts=mounts, envs={VISIBLE: DEVICES})
    return found


def _cdi(names: Sequence[str], settings: GpuSettings) -> dp.Allocation:
    qualified = [
        *(f"{CDI_VENDOR}/gpu={one}" for one in names),
        *(f"{CDI_VENDOR}/imex-channel={channel}" for channel in settings.imex_channel_ids),
        *(f"{CDI_VENDOR}/{mode}=all" for mode in _enabled(settings)),
    ]
    text = ",".join(qualified)
    strategies = settings.device_list_strategy
    annotations = {}
    if "cdi-annotations" in strategies:
        # The same for the same devices, and another one for the other resources of a container.
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        annotations[f"{settings.cdi_annotation_prefix}{_ANNOTATION}{key}"] = text
    return dp.Allocation(
        annotations=annotations, cdi_names=qualified if "cdi-cri" in strategies else ()
    )


def _as_client(units: Sequence[Unit], settings: GpuSettings) -> dp.Allocation:
    shared = [unit for unit in units if unit.replica is not None]
    if not shared or settings.mps_root is None:
        return dp.Allocation()
    return _mps.allocation(shared, shared[0].replicas, settings.mps_root)
