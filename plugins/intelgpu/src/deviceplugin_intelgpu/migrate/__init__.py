"""What ``deviceplugin migrate`` knows of Intel's plugins for GPUs, NPUs and others."""

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_intelgpu.migrate import gpu, npu
from deviceplugin_intelgpu.migrate.peers import ADVICE, recognized


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of Intel's GPU or NPU plugin; None for anything else.

    What can be done in place of Intel's other plugins is noted as the reason that they are dropped.

    Raises:
        ConfigError: A value is invalid, or it is not certain which of Intel's charts it is.
    """
    found = recognized(workload)
    if found is None:
        return None
    if found.plugin == "gpu":
        return gpu.migrate(workload, found)
    if found.plugin == "npu":
        return npu.migrate(workload, found)
    workload.account.drop(workload.root, ADVICE[found.plugin])
    return None
