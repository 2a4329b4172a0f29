"""What ``deviceplugin doctor`` checks for this plugin."""

from collections.abc import Iterable
from typing import Final

from deviceplugin.checks import Finding, Hardware, Need, Node
from deviceplugin_fpga.drivers import DRIVERS

_CLASSES: Final = tuple(f"sys/class/{driver.folder}" for driver in DRIVERS)


def look(node: Node) -> Iterable[Finding]:
    """Intel FPGAs: driver, device files, libraries."""
    return _FPGAS.look(node)


_FPGAS: Final = Hardware(
    plugin="fpga",
    what="Intel FPGAs",
    vendor="0x8086",
    pci_class="0x1200",
    signs=_CLASSES,
    rivals=("*vfio_pci",),
    needs=(
        Need(
            what="class directory of a driver",
            any_of=_CLASSES,
            means="neither OPAE's driver nor the kernel's (DFL) is loaded: 0 FPGAs.",
            do="modprobe dfl-pci dfl-fme dfl-afu (Linux 5.3 or newer), or install OPAE's driver.",
            is_driver=True,
        ),
        Need(
            what="FPGA in it",
            any_of=("sys/class/fpga/intel-fpga-dev.*", "sys/class/fpga_region/region*"),
            means="the driver is loaded, but is bound to no card.",
            do="lspci -nnk shows the driver of each card; dmesg shows why this one was not bound.",
        ),
        Need(
            what="port of an FPGA",
            any_of=(
                "sys/class/fpga/intel-fpga-dev.*/intel-fpga-port.*",
                "sys/class/fpga_region/region*/dfl-port.*",
            ),
            means="there is nothing to allocate to a pod.",
            do="modprobe dfl-afu. A port of a virtual function is below that function.",
        ),
        Need(
            what="device file of a port",
            any_of=("dev/intel-fpga-port.*", "dev/dfl-port.*"),
            means="the port cannot be allocated to a pod.",
            do="check that udev runs (udevadm trigger); in a pod, mount the host's /dev.",
        ),
    ),
)
