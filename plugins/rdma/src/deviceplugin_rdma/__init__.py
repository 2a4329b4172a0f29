"""A Kubernetes device plugin for RDMA devices and SR-IOV functions."""

from typing import NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import MOUNTED, STRICT, Hosted
from deviceplugin_rdma.plugin import RdmaPlugin
from deviceplugin_rdma.settings import RdmaSettings

__all__ = ["RdmaPlugin", "RdmaSettings", "main"]


def main() -> NoReturn:
    """Run ``rdma-device-plugin``."""
    dp.main(
        RdmaPlugin,
        settings=RdmaSettings,
        description="Offer RDMA devices and SR-IOV functions of network cards to pods.",
    )


def hosted() -> Hosted[RdmaSettings]:
    """Return the plugin for ``device-plugins``."""
    mounted = ("proc-net-dir", "devinfo-dir", "state-file", "sysfs-dir", "dev-dir")
    renamed = {"resources": "resourceList"}
    owned = {**dict.fromkeys(mounted, MOUNTED), **STRICT}
    return Hosted(RdmaPlugin, RdmaSettings, _resources, owned, renamed)


def _resources(settings: RdmaSettings) -> list[str]:
    return [settings.resource(entry) for entry in settings.resources if not entry.problem]
