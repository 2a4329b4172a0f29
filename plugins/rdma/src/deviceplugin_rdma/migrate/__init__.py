"""What ``deviceplugin migrate`` knows of the SR-IOV and the RDMA shared device plugin."""

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_rdma.migrate import containers, objects


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of one of the two plugins; None for anything else."""
    known = objects.migrate if workload.kind else containers.migrate
    return known(workload)
