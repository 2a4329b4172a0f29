"""The kubelet's device plugin API v1beta1: messages (generated) and constants.

For the two sides of the wire only; plugin authors never need it.
"""

from typing import Final

VERSION: Final = "v1beta1"
"""The API version that a plugin registers with."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

PLUGIN_DIR: Final = "/var/lib/kubelet/device-plugins"
"""Plugin directory: fixed in the kubelet, whatever its ``--root-dir``."""

KUBELET_SOCKET: Final = "kubelet.sock"
"""File name of the kubelet's own socket in the plugin directory."""

MAX_LIST_BYTES: Final = 4 * 1024 * 1024
"""Largest encoded ``ListAndWatchResponse`` that a kubelet accepts."""

PRE_START_TIMEOUT: Final = 30.0
"""Seconds that a kubelet gives ``PreStartContainer``."""
