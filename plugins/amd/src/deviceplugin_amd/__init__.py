"""A Kubernetes device plugin for AMD GPUs and partitions of them."""

from typing import NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import Hosted
from deviceplugin_amd.plugin import AmdPlugin
from deviceplugin_amd.settings import AmdSettings

__all__ = ["AmdPlugin", "AmdSettings", "main"]


def hosted() -> Hosted[AmdSettings]:
    """Return the plugin for ``device-plugins``."""
    return Hosted(AmdPlugin, AmdSettings)


def main() -> NoReturn:
    """Run ``amd-device-plugin``."""
    dp.main(
        AmdPlugin,
        settings=AmdSettings,
        description="Offer AMD GPUs to pods: whole, divided into partitions, or shared.",
    )
