"""Plugins that are known and have no file that could be read: what takes the place of each."""

import re
from typing import Final

from deviceplugin.kit.migration import Workload

_OTHERS: Final = {
    "device-plugin-kvm$": (
        "KubeVirt's old plugin for /dev/kvm: demo/examples/generic offers it, under their name "
        "with domain: devices.kubevirt.io"
    ),
    "device-plugin-(network-bridge|pci|vfio)$": (
        "an old plugin of KubeVirt: bridges are for CNI plugins; for functions of vfio-pci write "
        "an entry of the generic plugin with nodes: [vfio]"
    ),
    "virt-(handler|operator|api|controller)$": (
        "KubeVirt itself, whose device plugins stay: of permittedHostDevices only those with "
        "externalResourceProvider are of other plugins"
    ),
    "akri/(agent|agent-full|udev-discovery|controller)$": (
        "akri's program: what it offers is in its objects: kubectl get configurations.akri.sh "
        "--all-namespaces --output yaml | deviceplugin migrate -"
    ),
    "k8s-host-?path-device-plugin$": (
        "everpeace's plugin, which a webhook mounts a path for: write an entry with paths: "
        "[{path: PATH, type: Mount}] and count: numDevices; no webhook is needed"
    ),
    "k8s-host-device-plugin$": (
        "everpeace's plugin: write an entry with a path for each device of it, and count: "
        "numDevices"
    ),
    "fuse-device-plugin|k8s-fuse-plugin$": (
        "a plugin for /dev/fuse: demo/examples/generic offers it, under their name with "
        "domain: github.com, or domain: nextflow.io"
    ),
    "usbip-device-plugin$": "it attaches devices of other machines, which ours does not: keep it",
    "edgetpu-device-plugin$": (
        "a plugin for Coral sticks: write an entry with usb: [{vendor: '1a6e', product: '089a'}, "
        "{vendor: '18d1', product: '9302'}]"
    ),
    "(k8s-)?(socketcan|dvb|uinput)-?device-plugin$|k8s-socketcan$": (
        "a plugin for one kind of device: write an entry of the generic plugin with select: "
        "{subsystem: ...}; virtual CAN interfaces stay with it"
    ),
}
"""By what the image's name has at its end."""


def note(workload: Workload) -> None:
    """Note what is said of a workload that is known and is not migrated."""
    for pattern, why in _OTHERS.items():
        if re.search(f"(^|[/_-]){pattern}", workload.image):
            workload.account.drop(workload.root, why)
