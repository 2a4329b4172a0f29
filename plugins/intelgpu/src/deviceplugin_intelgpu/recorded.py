"""What ``deviceplugin record`` writes down of Intel GPUs."""

from collections.abc import Iterable

from deviceplugin.kit.hardware import Tree
from deviceplugin_intelgpu.plugin import IntelGpuPlugin
from deviceplugin_intelgpu.settings import IntelGpuSettings


def read(tree: Tree) -> Iterable[str]:
    """Read what a discovery reads."""
    settings = IntelGpuSettings(
        enable_monitoring=True, sysfs_dir=tree.sysfs.root, dev_dir=tree.dev, state_file=None
    )
    IntelGpuPlugin(settings, tree.sysfs).discover()
    return ()
