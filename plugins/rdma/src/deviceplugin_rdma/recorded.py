"""What ``deviceplugin record`` writes down of network cards."""

from collections.abc import Iterable

from deviceplugin.kit.hardware import Tree
from deviceplugin_rdma.entries import AUXILIARY, Entry, Selector
from deviceplugin_rdma.plugin import RdmaPlugin
from deviceplugin_rdma.settings import RdmaSettings

_WAYS = (
    Entry("shared", shares=2),
    Entry("rdma", selectors=(Selector(is_rdma=True),)),
    Entry("whole"),
    Entry("accelerator", kind="accelerator"),
    Entry("vdpa", selectors=(Selector(vdpa="vhost"), Selector(vdpa="virtio"))),
    Entry("sub", kind=AUXILIARY),
)


def read(tree: Tree) -> Iterable[str]:
    """Read what a discovery reads in each way to offer a function; but no addresses and routes."""
    for entry in _WAYS:
        settings = RdmaSettings(
            resources=(entry,),
            state_file=None,
            devinfo_dir=None,
            sysfs_dir=tree.sysfs.root,
            dev_dir=tree.dev,
        )
        RdmaPlugin(settings, tree.sysfs).discover()
    return ()
