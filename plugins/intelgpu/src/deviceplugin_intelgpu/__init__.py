"""A Kubernetes device plugin for Intel GPUs and their virtual functions."""

from typing import NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import MOUNTED, Hosted, acceptance
from deviceplugin_intelgpu import advertised
from deviceplugin_intelgpu.plugin import IntelGpuPlugin
from deviceplugin_intelgpu.settings import IntelGpuSettings

__all__ = ["IntelGpuPlugin", "IntelGpuSettings", "main"]


def main() -> NoReturn:
    """Run ``intelgpu-device-plugin``."""
    dp.main(
        IntelGpuPlugin,
        settings=IntelGpuSettings,
        commands={"accept": acceptance("intelgpu")},
        description="Offer Intel GPUs and their virtual functions to pods, whole or shared.",
    )


def hosted() -> Hosted[IntelGpuSettings]:
    """Return the plugin for ``device-plugins``."""
    owned = {
        "labels-file": "it needs a directory: deployments/components/intelgpu-labels",
        "state-file": MOUNTED,
        "sysfs-dir": "every container has its own /sys",
        "dev-dir": MOUNTED,
    }
    return Hosted(IntelGpuPlugin, IntelGpuSettings, advertised.resources, owned)
