"""What becomes of Intel's NPU plugin: an entry of the generic plugin."""

from collections.abc import Mapping
from typing import Final

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_intelgpu.migrate.keys import LOGS, Read, number, place, read
from deviceplugin_intelgpu.migrate.peers import Recognized

KNOWN: Final[Mapping[str, tuple[str, Read]]] = {"shared-dev-num": ("count", number)}
DROPPED: Final[Mapping[str, str]] = {**LOGS, "prefix": "not supported: sysfs is read at /sys"}


def migrate(workload: Workload, found: Recognized) -> Migration:
    """Return what becomes of the plugin; raise ``ConfigError`` for an invalid value."""
    result = Migration(
        peer="the NPU plugin of intel-device-plugins-for-kubernetes",
        plugin="generic",
        configuration={},
        differences=[
            "resource name: the same, npu.intel.com/accel",
            (
                "device ids: others, so drain a node before: what a pod holds would be given to a "
                "second one"
            ),
            "devices: all that the driver intel_vpu has, whatever their PCI id",
        ],
    )
    group = {
        **dict(read(workload, found, KNOWN, DROPPED, result)),
        "select": {"subsystem": "accel", "driver": "intel_vpu"},
    }
    result.configuration = {
        "domain": "npu.intel.com",
        "devices": [{"name": "accel", "groups": [group]}],
    }
    place(workload, found, result)
    return result
