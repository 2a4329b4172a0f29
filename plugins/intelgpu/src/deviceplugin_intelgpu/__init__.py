"""A Kubernetes device plugin for Intel GPUs and their virtual functions."""

from typing import NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import Hosted
from deviceplugin_intelgpu.plugin import IntelGpuPlugin
from deviceplugin_intelgpu.settings import IntelGpuSettings

__all__ = ["IntelGpuPlugin", "IntelGpuSettings", "main"]


def main() -> NoReturn:
    """Run ``intelgpu-device-plugin``."""
    dp.main(
        IntelGpuPlugin,
        settings=IntelGpuSettings,
        description="Offer Intel GPUs and their virtual functions to pods, whole or shared.",
    )


def hosted() -> Hosted[IntelGpuSettings]:
    """Return the plugin for ``device-plugins``."""
    return Hosted(IntelGpuPlugin, IntelGpuSettings)
