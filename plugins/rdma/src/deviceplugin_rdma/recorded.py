"""What ``deviceplugin record`` writes down of network cards, beyond what it does of any device."""

from collections.abc import Mapping, Sequence
from typing import Final

ATTRIBUTES: Final[Mapping[str, Sequence[str]]] = {
    "infiniband": [f"ports/*/{name}" for name in ("state", "phys_state", "rate", "link_layer")],
    "net": ["carrier", "flags", "phys_port_name"],
    "pci": ["acpi_index", "current_link_width", "max_link_width"],
}
"""Names of attributes by subsystem. Addresses of interfaces, GIDs and GUIDs are not among them."""
