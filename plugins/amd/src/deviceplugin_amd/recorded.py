"""What ``deviceplugin record`` writes down of AMD GPUs."""

from collections.abc import Iterable

from deviceplugin.kit.hardware import Tree
from deviceplugin_amd import advertised
from deviceplugin_amd.plugin import AmdPlugin
from deviceplugin_amd.settings import AmdSettings
from deviceplugin_amd.snapshot import Reader


def read(tree: Tree) -> Iterable[str]:
    """Read what a discovery reads, and the labels; but nothing of processes."""
    settings = AmdSettings(
        sysfs_dir=tree.sysfs.root, dev_dir=tree.dev, state_file=None, clean_handover=False
    )
    advertised.labels(Reader(tree.sysfs, tree.dev).read().units, tree.sysfs)
    AmdPlugin(settings, tree.sysfs).discover()
    return ()
