"""The configuration's keys, choices and forms: what is read, and what ``schema.json`` tells."""

import re
from typing import Final, get_args

from deviceplugin_generic.entries import Identity, Policy

_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN: Final = rf"^(?=.{{1,244}}$){_LABEL}(\.{_LABEL})*$"
NAME: Final = r"^\s*[a-z0-9][-a-z0-9]{0,61}[a-z0-9]\s*$"
HEXADECIMAL: Final = r"^(0[xX])?[0-9a-fA-F]{1,4}$"
PCI_CLASS: Final = r"^(0[xX])?[0-9a-fA-F]{1,6}$"
PERMISSIONS: Final = r"^(?!.*(.).*\1)[mrw]*$"
DURATION: Final = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"
CDI: Final = r"^[^/=\s]+/[^/=\s]+=\S+$"
SUBSYSTEM: Final = r"^[A-Za-z0-9_-]+$"
MOUNT_PATH: Final = r"^\s*(/|$)"
NODE: Final = r"^/dev/[^*?\[\\]+$"

ENTRY: Final = (
    *("name", "groups", "id", "env", "annotations", "mounts", "cdi", "health", "policy"),
)
KINDS: Final = ("paths", "usb", "select")
"""A group has one of these."""
BEHIND: Final = ("nodes", "perMatch", "mountPath", "permissions", "with")
"""Keys of a group that has no paths."""
GROUP: Final = ("count", *KINDS, *BEHIND)
PATH: Final = ("path", "mountPath", "permissions", "readOnly", "type", "limit", "optional")
USB: Final = ("vendor", "product", "serial")
SELECT: Final = (
    *("subsystem", "name", "vendor", "product", "serial", "driver", "class", "link"),
    *("properties", "attributes", "not"),
)
EXCLUDED: Final = tuple(key for key in SELECT if key not in {"subsystem", "not"})
"""Keys of a selector under ``not``."""
HEALTH: Final = (
    *("open", "command", "timeout", "properties", "interval", "failures", "successes"),
)
MOUNT: Final = ("path", "mountPath", "readOnly")
RULE: Final = ("devicematch", "nummaxdevices")
"""Keys of smarter-device-manager."""

TYPES: Final = ("Device", "Mount")
IDENTITIES: Final = get_args(Identity)
POLICIES: Final = get_args(Policy)
UNLIMITED: Final = "unlimited"
NODE_AS_MOUNT: Final = (
    "is a device node, which a container cannot open as a mount: use paths, or with beside select"
)
MOST_LOOKS: Final = 1000
"""Looks in a row that change a verdict on health, at most."""
SETTINGS: Final = {
    "plugin-directory": "plugin-dir",
    "listen": "http-address",
    "devices": "device",
}
"""Keys of generic-device-plugin's file, which are its flags too, and ours."""
LEVELS: Final = {"all": "debug", "warn": "warning", "none": "error"}
"""Levels of the log as generic-device-plugin has them, and ours."""


_LONGEST: Final = 300
"""Characters that a message shows of a key, or says of a value."""


def has_form(text: str, form: str) -> bool:
    """Tell whether ``text`` is of a form, whose ``$`` is the very end as JSON Schema has it."""
    return re.search(form.replace("$", r"\Z"), text) is not None


def bounded(text: str) -> str:
    """Return a text for a message; its middle is left out if it is very long.

    Every value of a configuration that a message shows goes through here. What to do about it is
    at the end.
    """
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
