"""Names of resources, the same as in intel-device-plugins-for-kubernetes."""

from base64 import urlsafe_b64encode
from typing import Final

NAMESPACE: Final = "fpga.intel.com"
REGION_MODE: Final = f"{NAMESPACE}/region"
"""Value of the annotation by which a runtime knows that a region is to be programmed."""


def af(interface_id: str, afu_id: str) -> str:
    """Return the resource of a port that is programmed with ``afu_id``.

    Both ids in full would be too long. They are in base64, after the first digits of each, by which
    people can distinguish them.
    """
    both = urlsafe_b64encode(bytes.fromhex(interface_id + afu_id)).decode().rstrip("=")
    return f"{NAMESPACE}/af-{interface_id[:3]}.{afu_id[:3]}.{both}"


def region(interface_id: str) -> str:
    """Return the resource of an FME whose regions can be programmed."""
    return f"{NAMESPACE}/region-{interface_id}"
