"""Settings that were given and change nothing, with what to do instead."""

from collections.abc import Iterator
from typing import Final

from deviceplugin_gpu.configuration.settings import GpuSettings

_GENERATED: Final = (
    "only what nvidia-ctk cdi generate writes has hooks: give it this, and the specification that "
    "it writes is used"
)
_DEFAULT: Final = GpuSettings()


def without_effect(settings: GpuSettings) -> Iterator[tuple[str, str]]:
    """Yield the keys of settings without effect, each with what has one."""
    strategies = settings.device_list_strategy
    if settings.nvidia_cdi_hook_path != _DEFAULT.nvidia_cdi_hook_path:
        yield "nvidia-cdi-hook-path", _GENERATED
    if settings.cdi_feature_flags:
        yield "cdi-feature-flags", _GENERATED
    if settings.cdi_disable_hooks:
        yield "cdi-disable-hooks", _GENERATED
    if settings.cdi_annotation_prefix != _DEFAULT.cdi_annotation_prefix and (
        "cdi-annotations" not in strategies
    ):
        yield "cdi-annotation-prefix", "add cdi-annotations to device-list-strategy"
    if settings.pass_device_specs and not strategies.plain:
        yield "pass-device-specs", "the CDI specification has the device nodes, if all go by CDI"
    if settings.imex_required and not settings.imex_channel_ids:
        yield "imex-required", "name the channels by imex-channel-ids"
    elif settings.imex_required and not strategies.cdi:
        yield "imex-required", "add cdi-cri to device-list-strategy: only CDI can require them"
