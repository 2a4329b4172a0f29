"""Variables of containers: lists that several devices add to, and names after resources."""

from deviceplugin.model import Joined

__all__ = ["KUBEVIRT", "Joined", "variable"]

KUBEVIRT = "PCI_RESOURCE_"
"""What precedes `variable` in the variable from which KubeVirt takes PCI addresses."""


def variable(resource: str) -> str:
    """Return the name of a resource as parts of variables have it: ``DEVIC_ES_GPU``.

    KubeVirt and the SR-IOV network device plugin write it so. A hyphen stays as it is.
    """
    return resource.replace("/", "_").replace(".", "_").upper()
