"""What becomes of Intel's GPU plugin: of flags, its operator's objects, and values of its chart."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_intelgpu.migrate.keys import (
    LOGS,
    Read,
    models,
    number,
    one_of,
    place,
    read,
    switch,
)
from deviceplugin_intelgpu.migrate.peers import Recognized
from deviceplugin_intelgpu.settings import ByPath, MonitoringMode

KNOWN: Final[Mapping[str, tuple[str, Read]]] = {
    "shared-dev-num": ("shares", number),
    "allocation-policy": ("share-policy", one_of("none", "balanced", "packed")),
    "allow-ids": ("include", models),
    "deny-ids": ("exclude", models),
    "bypath": ("bypath", one_of(*get_args(ByPath))),
    "enable-monitoring": ("enable-monitoring", switch),
    "monitoring-mode": ("monitoring-mode", one_of(*get_args(MonitoringMode))),
}
"""Their flags, and our settings."""
_OWN_HEALTH: Final = "not taken over: our plugin has checks of its own, which need no other program"
DROPPED: Final[Mapping[str, str]] = {
    **LOGS,
    "xpumd-endpoint": _OWN_HEALTH,
    "health-management": _OWN_HEALTH,
    "temp-limit": _OWN_HEALTH,
    "gpu-temp-limit": _OWN_HEALTH,
    "memory-temp-limit": _OWN_HEALTH,
    "wsl": "not supported",
    "prefix": "not supported: sysfs is read at /sys",
    "resource-manager": "not supported: parts of a GPU (millicores, memory.max) are not offered; "
    "their newer releases have none either",
}
"""Their other flags, and why they are not taken over."""


def migrate(workload: Workload, found: Recognized) -> Migration:
    """Return what becomes of the plugin; raise ``ConfigError`` for an invalid value."""
    configuration: dict[str, Any] = {"device-ids": "card"}
    result = Migration(
        peer="the GPU plugin of intel-device-plugins-for-kubernetes",
        plugin="intelgpu",
        configuration=configuration,
        differences=[
            "resource names: the same, gpu.intel.com/i915 and gpu.intel.com/xe",
            (
                "device ids: the same, card0-0 and the like, so running pods keep their devices; "
                "without device-ids they are PCI addresses, which a reboot does not change"
            ),
            "CDI: none; containers get the device nodes",
        ],
    )
    if found.is_chart:
        # What their chart has by itself.
        configuration["enable-monitoring"] = True
    configuration.update(read(workload, found, KNOWN, DROPPED, result))
    # Ours prefers different GPUs by default; theirs has no preference among shares.
    configuration.setdefault("share-policy", "none")
    if place(workload, found, result):
        result.components.append("intelgpu-labels")
        result.differs(
            "labels",
            "by the component intelgpu-labels, for which Node Feature Discovery has to run",
        )
    return result
