"""What a container gets for its devices: variables, mounts, annotations and CDI names."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import mps

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
DEVICES: Final = "/var/run/nvidia-container-devices"
"""Where the runtime looks for mounts that name devices."""
_NOTHING: Final[Mapping[str, Any]] = {}
_NULL: Final = "/dev/null"
_ANNOTATION: Final = "nvidia-device-plugin_"
_MODES: Final = ("gdrcopy", "gds", "mofed")


def name(unit: Unit, settings: GpuSettings) -> str:
    """Return what the runtime gets for ``unit``: its UUID or its index."""
    return unit.index if settings.device_id_strategy == "index" else unit.uuid


def allocation(
    units: Sequence[Unit],
    settings: GpuSettings,
    *,
    nodes: Mapping[str, Sequence[dp.DeviceNode]] = _NOTHING,
    cdi_names: Mapping[str, str] = _NOTHING,
    cdi_others: Sequence[str] = (),
) -> dp.Allocation:
    """Return what a container with ``units`` gets. The same units have the same result.

    Replicas of one device are listed once.

    Args:
        units: What the container was allocated.
        settings: The strategies.
        nodes: Device nodes by id, for those that get any.
        cdi_names: Qualified CDI names by id, for those that have one.
        cdi_others: CDI names that every container gets.
    """
    ordered = sorted(units, key=lambda unit: unit.key)
    names = list(dict.fromkeys(name(unit, settings) for unit in ordered))
    found = dp.Allocation(envs=_modes(settings))
    if settings.device_list_strategy.plain:
        found += _plain(names, settings)
        given = (dp.Allocation(nodes=nodes.get(unit.id, ())) for unit in ordered)
        found += sum(given, dp.Allocation())
    if settings.device_list_strategy.cdi:
        qualified = [cdi_names[unit.id] for unit in ordered if unit.id in cdi_names]
        found += _cdi(list(dict.fromkeys([*qualified, *cdi_others])), settings)
    if settings.sharing.mps:
        found += _as_client(ordered, settings)
    return found


def enabled_modes(settings: GpuSettings) -> list[str]:
    """Return which of gdrcopy, gds and mofed are enabled."""
    return [mode for mode in _MODES if getattr(settings, f"{mode}_enabled")]


def _modes(settings: GpuSettings) -> dict[str, str]:
    return {f"NVIDIA_{mode.upper()}": "enabled" for mode in enabled_modes(settings)}


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
    text = ",".join(names)
    strategies = settings.device_list_strategy
    annotations = {}
    if "cdi-annotations" in strategies:
        # The same for the same devices, and different for the container's other resources.
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        annotations[f"{settings.cdi_annotation_prefix}{_ANNOTATION}{key}"] = text
    return dp.Allocation(
        annotations=annotations, cdi_names=names if "cdi-cri" in strategies else ()
    )


def _as_client(units: Sequence[Unit], settings: GpuSettings) -> dp.Allocation:
    shared = [unit for unit in units if unit.replica is not None]
    if not shared or settings.mps_root is None:
        return dp.Allocation()
    return mps.allocation(shared, shared[0].replicas, settings.mps_root)
