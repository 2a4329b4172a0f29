"""The kubelet's protocol for drivers of dynamic resource allocation (DRA): messages and constants.

For the two sides of the wire only; plugin authors never need it. Versions v1 and v1beta1 have the
same messages; only v1 has shares of a device.
"""

from typing import Final

PLUGIN_TYPE: Final = "DRAPlugin"
"""The type of a DRA driver in ``PluginInfo``."""

V1: Final = "v1.DRAPlugin"
"""The name under which a driver registers ``DRAPlugin`` of v1; not the service's name on the wire.
"""

V1BETA1: Final = "v1beta1.DRAPlugin"
"""The same of v1beta1, which kubelets before 1.34 need."""

HEALTH: Final = "v1alpha1.DRAResourceHealth"
"""The name under which a driver registers the stream of device health."""

CALL_TIMEOUT: Final = 45.0
"""Seconds that a kubelet gives each call."""

HEALTH_TIMEOUT: Final = 30.0
"""Seconds after a report until the kubelet regards the health of a device as unknown."""

MAX_HEALTH_MESSAGE: Final = 1024
"""Most characters of a message that the kubelet keeps."""
