"""What each plugin's hardware shows of itself on a node, and needs to be usable."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Need:
    """Something that must be there: any of some patterns below the node's root."""

    what: str
    any_of: tuple[str, ...]
    means: str
    do: str
    looked_for: str = ""
    """The patterns in short, where there are many."""
    follows: bool = True
    """Whether it is there only if what stands before it is."""
    is_driver: bool = False
    needed: bool = True
    """Whether there are no devices without it."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Where a plugin's hardware can be seen."""

    plugin: str
    what: str
    vendor: str
    """As in sysfs."""
    pci_class: str
    """The beginning of it, as in sysfs."""
    signs: tuple[str, ...]
    """Patterns that show, without the PCI bus, that the hardware is here."""
    needs: tuple[Need, ...]
    rivals: tuple[str, ...] = ()
    """Kernel modules that keep the right one from having the hardware."""


_LIBRARY_DIRECTORIES: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib",
)
_DRIVER_ROOTS: Final = ("", "driver-root/", "run/nvidia/driver/", "usr/local/nvidia/")

_GPU: Final = Hardware(
    plugin="gpu",
    what="NVIDIA GPUs",
    vendor="0x10de",
    pci_class="0x03",
    signs=("sys/module/nvidia", "proc/driver/nvidia", "dev/nvidiactl"),
    rivals=("nouveau", "vfio_pci"),
    needs=(
        Need(
            "kernel driver nvidia",
            ("sys/module/nvidia", "proc/driver/nvidia/version"),
            means="the GPUs cannot be used, and the plugin advertises 0 GPUs until it is loaded.",
            do="install the NVIDIA driver and modprobe nvidia; dmesg | grep -i nvrm tells why it "
            "does not load. Blacklist nouveau; unbind cards from vfio-pci.",
            is_driver=True,
        ),
        Need(
            "device file of the driver",
            ("dev/nvidiactl", "driver-root/dev/nvidiactl", "run/nvidia/driver/dev/nvidiactl"),
            means="NVML cannot be started, so the plugin sees 0 GPUs.",
            do="run nvidia-smi or nvidia-modprobe -c 0 on the node, which makes the files; in a "
            "pod, use the runtime class nvidia, or mount /dev of the host.",
        ),
        Need(
            "device file of a GPU",
            (
                "dev/nvidia[0-9]*",
                "driver-root/dev/nvidia[0-9]*",
                "run/nvidia/driver/dev/nvidia[0-9]*",
            ),
            means="the driver is there and has no GPU: each has failed to start, or is not let in.",
            do="dmesg | grep -i xid; nvidia-modprobe -c 0; in a pod, NVIDIA_VISIBLE_DEVICES=all.",
        ),
        Need(
            "libnvidia-ml.so.1",
            tuple(
                f"{root}{directory}/libnvidia-ml.so.1"
                for root in _DRIVER_ROOTS
                for directory in _LIBRARY_DIRECTORIES
            ),
            means="the plugin cannot ask the driver for GPUs, and advertises 0.",
            do="in a pod, use the runtime class nvidia (nvidia-container-toolkit), or mount the "
            "driver's root at /driver-root; on a node, install the driver's libraries.",
            looked_for=f"in {', '.join(_LIBRARY_DIRECTORIES)} "
            f"below {', '.join(f'/{root}' for root in _DRIVER_ROOTS)}",
            follows=False,
        ),
    ),
)

_FPGA: Final = Hardware(
    plugin="fpga",
    what="Intel FPGAs",
    vendor="0x8086",
    pci_class="0x1200",
    signs=("sys/class/fpga", "sys/class/fpga_region"),
    rivals=("vfio_pci",),
    needs=(
        Need(
            "class directory of a driver",
            ("sys/class/fpga", "sys/class/fpga_region"),
            means="neither OPAE's driver nor the kernel's (DFL) is loaded: 0 FPGAs.",
            do="modprobe dfl-pci dfl-fme dfl-afu (Linux 5.3 or newer), or install OPAE's driver.",
            is_driver=True,
        ),
        Need(
            "FPGA in it",
            ("sys/class/fpga/intel-fpga-dev.*", "sys/class/fpga_region/region*"),
            means="the driver is loaded and has bound no card.",
            do="lspci -nnk shows the driver of each card; dmesg tells why it was not taken.",
        ),
        Need(
            "port of an FPGA",
            (
                "sys/class/fpga/intel-fpga-dev.*/intel-fpga-port.*",
                "sys/class/fpga_region/region*/dfl-port.*",
            ),
            means="there is nothing that a pod could be given.",
            do="modprobe dfl-afu; a port that was handed to a virtual function is on that one.",
        ),
        Need(
            "device file of a port",
            ("dev/intel-fpga-port.*", "dev/dfl-port.*"),
            means="a pod cannot be given the port.",
            do="see whether udev runs (udevadm trigger); in a pod, mount /dev of the host.",
        ),
    ),
)

HARDWARE: Final = (_GPU, _FPGA)
