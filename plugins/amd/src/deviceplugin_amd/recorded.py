"""What ``deviceplugin record`` writes down of AMD GPUs, beyond what it does of any device."""

from collections.abc import Mapping, Sequence
from typing import Final

ATTRIBUTES: Final[Mapping[str, Sequence[str]]] = {
    "kfd": [
        "topology/generation_id",
        "topology/nodes/*/gpu_id",
        "topology/nodes/*/properties",
        "topology/nodes/*/*/*/properties",
    ],
    "pci": [
        "available_*_partition",
        "current_*_partition",
        "mem_info_vram_total",
        "product_name",
        "ras/*_err_count",
        "ras/gpu_vram_bad_pages",
    ],
}
"""Names of attributes by subsystem. Processes of KFD are not among them."""
