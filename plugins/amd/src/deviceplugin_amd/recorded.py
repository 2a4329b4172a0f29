"""What ``deviceplugin record`` writes down of AMD GPUs."""

from collections.abc import Iterable

from deviceplugin.kit.hardware import Tree
from deviceplugin_amd.plugin import AmdPlugin
from deviceplugin_amd.settings import AmdSettings


def read(tree: Tree) -> Iterable[str]:
    """Read what a discovery reads; but nothing of processes."""
    settings = AmdSettings(
        resource_naming_strategy="mixed",  # of all GPUs, however they are divided
        sysfs_dir=tree.sysfs.root,
        dev_dir=tree.dev,
        state_file=None,
        clean_handover=False,
    )
    AmdPlugin(settings, tree.sysfs).discover()
    return ()
