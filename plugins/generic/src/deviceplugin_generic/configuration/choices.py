"""Choices and forms of the configuration, and what peers call them."""

from typing import Final, get_args

from deviceplugin_generic.configuration.entries import Identity, Policy

_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN: Final = rf"^(?=.{{1,244}}$){_LABEL}(\.{_LABEL})*$"
NAME: Final = r"^\s*[a-z0-9][-a-z0-9]{0,61}[a-z0-9]\s*$"
HEXADECIMAL: Final = r"^(0[xX])?[0-9a-fA-F]{1,4}$"
PCI_CLASS: Final = r"^(0[xX])?[0-9a-fA-F]{1,6}$"
PERMISSIONS: Final = r"^(?!.*(.).*\1)[mrw]*$"
CDI: Final = r"^[^/=\s]+/[^/=\s]+=\S+$"
SUBSYSTEM: Final = r"^[A-Za-z0-9_-]+$"
NODE: Final = r"^/dev/[^*?\[\\]+$"

TYPES: Final = ("Device", "Mount")
IDENTITIES: Final = get_args(Identity)
POLICIES: Final = get_args(Policy)
UNLIMITED: Final = "unlimited"
NODE_AS_MOUNT: Final = (
    "is a device node, which a container cannot open as a mount: use paths, or with beside select"
)
MOST_LOOKS: Final = 1000
"""The most checks in a row that a change of health may need."""
SETTINGS: Final = {
    "plugin-directory": "plugin-dir",
    "listen": "http-address",
    "devices": "device",
}
"""Keys of generic-device-plugin's file, which are its flags too, and ours."""
LEVELS: Final = {"all": "debug", "warn": "warning", "none": "error"}
"""The log levels of generic-device-plugin, and ours."""
