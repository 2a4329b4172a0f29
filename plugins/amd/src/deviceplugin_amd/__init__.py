"""A Kubernetes device plugin for AMD GPUs and partitions of them."""

from typing import NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import MOUNTED, Hosted, acceptance
from deviceplugin_amd.plugin import AmdPlugin
from deviceplugin_amd.settings import DOMAIN, AmdSettings

__all__ = ["AmdPlugin", "AmdSettings", "main"]


def hosted() -> Hosted[AmdSettings]:
    """Return the plugin for ``device-plugins``."""
    owned = {
        "labels-file": "it needs a directory: deployments/components/amd-labels",
        "state-file": MOUNTED,
        "sysfs-dir": "every container has its own /sys",
        "dev-dir": MOUNTED,
    }
    return Hosted(AmdPlugin, AmdSettings, _resources, owned)


def _resources(settings: AmdSettings) -> list[str]:
    by_strategy = "gpu" if settings.resource_naming_strategy == "single" else "*"
    return [f"{DOMAIN}/{by_strategy}", *settings.resources.resources]


def main() -> NoReturn:
    """Run ``amd-device-plugin``."""
    dp.main(
        AmdPlugin,
        settings=AmdSettings,
        commands={"accept": acceptance("amd")},
        description="Offer AMD GPUs to pods: whole, divided into partitions, or shared.",
    )
