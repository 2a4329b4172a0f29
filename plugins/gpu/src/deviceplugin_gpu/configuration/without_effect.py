"""Settings that are given and have no effect, with what to do instead."""

from collections.abc import Iterator
from typing import Final

from deviceplugin_gpu.configuration.settings import GpuSettings

_GENERATED: Final = (
    "only nvidia-ctk cdi generate has such flags: pass it this, and the specification that it "
    "writes is used"
)
_CDI: Final = "add cdi-cri to device-list-strategy: only CDI specifications have hooks"
_DEFAULT: Final = GpuSettings()


def without_effect(settings: GpuSettings) -> Iterator[tuple[str, str]]:
    """Yield the keys of settings without effect, each with what to do instead."""
    strategies = settings.device_list_strategy
    if settings.cdi_feature_flags:
        yield "cdi-feature-flags", _GENERATED
    if not strategies.cdi and settings.nvidia_cdi_hook_path != _DEFAULT.nvidia_cdi_hook_path:
        yield "nvidia-cdi-hook-path", _CDI
    if not strategies.cdi and settings.cdi_disable_hooks:
        yield "cdi-disable-hooks", _CDI
    if settings.cdi_annotation_prefix != _DEFAULT.cdi_annotation_prefix and (
        "cdi-annotations" not in strategies
    ):
        yield "cdi-annotation-prefix", "add cdi-annotations to device-list-strategy"
    if settings.pass_device_specs and not strategies.plain:
        yield (
            "pass-device-specs",
            "the CDI specification has the device nodes, if CDI is the only strategy",
        )
    if settings.imex_required and not settings.imex_channel_ids:
        yield "imex-required", "name the channels in imex-channel-ids"
