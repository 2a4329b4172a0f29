"""Whether a GPU can be divided, and the instances that it has."""

from dataclasses import replace
from typing import Final

from deviceplugin_gpu.advertised.units import GPU, is_selected
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.nvml import api, instances
from deviceplugin_gpu.nvml.api import Handle, NvmlError, Session
from deviceplugin_gpu.nvml.instances import Profile
from deviceplugin_gpu.parts.plan import Reading, too_many
from deviceplugin_gpu.snapshot import Gpu

_HOPPER: Final = (9, 0)
"""The compute capability from which on MIG is switched without a reset."""
_TOO_MANY: Final = "it has more memory slices than can be counted"
_NO_PLACES: Final = "its driver lists no places for MIG devices"
_RIGHTS: Final = (
    "the plugin may not configure MIG: add the component gpu-mig, or the capability SYS_ADMIN and "
    "/dev/nvidia-caps/nvidia-cap1"
)


def read(
    gpu: Gpu, session: Session, settings: GpuSettings, before: Reading, *, has_made: bool
) -> Reading:
    """Return what can be made of ``gpu``; what cannot be read of it is as ``before``.

    ``has_made``: claims have parts of it, whatever the settings are now. DiscoveryError if it has
    never been read then.
    """
    if not gpu.answers:
        return before
    why = _unwanted(gpu, settings)
    if why and not has_made:
        return Reading(reason=why)
    try:
        with session.use():
            found = _read(gpu, session.gpu(gpu.uuid, gpu.pci), settings, before.profiles)
            return replace(found, reason=why) if why else found
    except NvmlError as error:
        denied = error.code == api.NO_PERMISSION
        if has_made and not (denied or before.profiles):
            raise  # what claims have must be listed, or would be forgotten when they end
        said = f"{error}: {_RIGHTS}" if denied else str(error)
        lasting = denied or not before.profiles
        return replace(before, reason=why or (said if lasting else ""), problem=said)


def is_shared(gpu: Gpu, settings: GpuSettings) -> bool:
    """Return whether GPUs of this resource are shared. Then their counters could not be kept."""
    return any(share.name == resource(gpu, settings) for share in settings.sharing.shares)


def resource(gpu: Gpu, settings: GpuSettings) -> str:
    """Return the resource of the whole GPU, which its parts have too."""
    return settings.resources.gpu([gpu.name], GPU)


def _unwanted(gpu: Gpu, settings: GpuSettings) -> str:
    if settings.mig_on_demand == "off":
        return "mig-on-demand is off"
    if not is_selected(gpu, settings):
        return "it is excluded"
    return "" if gpu.mig_capable else "it has no MIG"


def _read(gpu: Gpu, handle: Handle, settings: GpuSettings, known: tuple[Profile, ...]) -> Reading:
    is_on, is_pending = instances.mode(handle)
    why = instances.blocked(handle) or mode_problem(gpu, settings, is_on=is_on)
    problem = ""
    if is_on != is_pending:
        why = problem = "a change of its MIG mode waits for a reset: nvidia-smi --gpu-reset"
    profiles = known if why and not is_on else known or instances.profiles(handle)
    if not why and not any(profile.places for profile in profiles):
        why = problem = _NO_PLACES
    if too_many(profiles):
        return Reading(reason=_TOO_MANY, problem=_TOO_MANY)
    found = tuple(instances.instances(handle, profiles)) if is_on else ()
    return Reading(profiles, found, why, problem)


def mode_problem(gpu: Gpu, settings: GpuSettings, *, is_on: bool) -> str:
    """Return why the MIG mode of this GPU is not for parts; empty if it is or may be switched."""
    if is_on:
        return ""
    if settings.mig_on_demand != "switch":
        return "MIG is off: nvidia-smi -mig 1, or mig-on-demand: switch"
    if is_shared(gpu, settings):
        return "it is shared by several containers as a whole"
    if gpu.compute < _HOPPER:
        return "MIG is off, and this model has to be reset to switch it on: nvidia-smi -mig 1"
    return ""
