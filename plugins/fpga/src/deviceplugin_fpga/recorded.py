"""What ``deviceplugin record`` writes down of FPGAs."""

from collections.abc import Iterable
from typing import get_args

from deviceplugin.kit.hardware import Tree
from deviceplugin_fpga.plugin import FpgaPlugin
from deviceplugin_fpga.settings import FpgaSettings, Mode


def read(tree: Tree) -> Iterable[str]:
    """Read what a discovery reads in each mode. Nothing is served, so no file is written."""
    for mode in get_args(Mode):
        FpgaPlugin(FpgaSettings(mode=mode, sysfs_dir=tree.sysfs.root), tree.sysfs).discover()
    return ()
