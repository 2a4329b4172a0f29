"""What ``deviceplugin doctor`` checks for this plugin."""

from collections.abc import Iterable
from typing import Final

from deviceplugin.checks import Finding, Hardware, Need, Node, warning
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd.snapshot import Reader


def look(node: Node) -> Iterable[Finding]:
    """AMD GPUs: driver, device files, KFD, partitions."""
    yield from _GPUS.look(node)
    found = Reader(Sysfs(node.at("sys")), node.at("dev")).read()
    for gpu, reason in found.skipped.items():
        yield warning(
            gpu,
            reason,
            means="the plugin does not offer it, or not all of its partitions.",
            do="amd-smi static --partition shows how it is divided; dmesg what the driver says.",
        )
    if found.topology.refused:
        yield warning(
            "KFD's topology",
            found.topology.refused,
            means="whole GPUs are offered; partitions, links between GPUs, clean hand-over and "
            "some labels take a privileged container.",
            do="where they are wanted, add deployments/components/amd-privileged.",
        )


_GPUS: Final = Hardware(
    plugin="amd",
    what="AMD GPUs",
    vendor="0x1002",
    pci_class=("0x03", "0x12"),
    signs=("sys/module/amdgpu", "dev/kfd"),
    rivals=("radeon", "*vfio_pci"),
    needs=(
        Need(
            what="kernel driver amdgpu",
            any_of=("sys/module/amdgpu",),
            means="the GPUs cannot be used, and the plugin advertises 0 GPUs until it is loaded.",
            do="modprobe amdgpu; dmesg | grep -i amdgpu tells why it does not load. Unbind cards "
            "from vfio-pci; a blacklist is in /etc/modprobe.d.",
            is_driver=True,
        ),
        Need(
            what="GPU that the driver has",
            any_of=("sys/bus/pci/drivers/amdgpu/[0-9a-f]*:*",),
            means="the driver is loaded and has bound no GPU.",
            do="lspci -nnk shows the driver of each card; dmesg | grep -i amdgpu tells why it was "
            "not taken.",
        ),
        Need(
            what="device file of KFD",
            any_of=("dev/kfd",),
            means="pods cannot compute with ROCm; all GPUs are unhealthy.",
            do="use a kernel with CONFIG_HSA_AMD, or AMD's driver; in a pod, mount /dev of the "
            "host.",
        ),
        Need(
            what="render node",
            any_of=("dev/dri/renderD*",),
            means="a pod cannot be given a GPU.",
            do="see whether udev runs (udevadm trigger); in a pod, mount /dev of the host.",
        ),
        Need(
            what="GPU in KFD's topology",
            any_of=("sys/class/kfd/kfd/topology/nodes/[0-9]*",),
            means="KFD supports none of the GPUs; they are unhealthy.",
            do="dmesg | grep -i kfd; see which GPUs this version of ROCm supports.",
        ),
    ),
)
