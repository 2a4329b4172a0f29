"""What ``deviceplugin doctor`` checks for this plugin."""

from collections.abc import Iterable
from typing import Final

from deviceplugin.checks import Finding, Hardware, Need, Node, warning
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_intelgpu.gpus import Look


def look(node: Node) -> Iterable[Finding]:
    """Intel GPUs: driver, device nodes, virtual functions."""
    yield from _GPUS.look(node)
    found = Look(Sysfs(node.at("sys")), node.at("dev")).look()
    for gpu, reason in found.skipped.items():
        yield warning(
            gpu,
            reason,
            means="the plugin does not offer it.",
            do="see what the driver says: dmesg | grep -e i915 -e xe.",
        )
    for card, reason in found.hidden.items():
        yield warning(
            card,
            reason,
            means="a card that has virtual functions is not offered beside them, and these "
            "are not offered without i915 or xe.",
            do="bind i915 or xe to them, or remove them: echo 0 to the card's sriov_numvfs. "
            "For virtual machines, the generic plugin offers those that VFIO has.",
        )


_GPUS: Final = Hardware(
    plugin="intelgpu",
    what="Intel GPUs",
    vendor="0x8086",
    pci_class="0x03",
    signs=("sys/bus/pci/drivers/i915/[0-9a-f]*:*", "sys/bus/pci/drivers/xe/[0-9a-f]*:*"),
    rivals=("*vfio_pci",),
    needs=(
        Need(
            what="kernel driver i915 or xe",
            any_of=("sys/module/i915", "sys/module/xe"),
            means="the GPUs cannot be used, and the plugin advertises 0 GPUs until it is loaded.",
            do="modprobe xe, or i915 for GPUs before Lunar Lake; dmesg tells why it does not load. "
            "Unbind cards from vfio-pci; a blacklist is in /etc/modprobe.d.",
            is_driver=True,
        ),
        Need(
            what="GPU that a driver has",
            any_of=("sys/bus/pci/drivers/i915/[0-9a-f]*:*", "sys/bus/pci/drivers/xe/[0-9a-f]*:*"),
            means="the driver is loaded and has bound no GPU.",
            do="lspci -nnk shows the driver of each card. A new GPU needs a newer kernel, or "
            "force_probe with its id: dmesg names it.",
        ),
        Need(
            what="render node",
            any_of=("dev/dri/renderD*",),
            means="a pod cannot be given a GPU.",
            do="see whether udev runs (udevadm trigger); in a pod, mount /dev of the host.",
        ),
    ),
)
