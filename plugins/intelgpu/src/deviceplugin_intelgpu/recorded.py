"""What ``deviceplugin record`` writes down of Intel GPUs, beyond what it does of any device."""

from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin_intelgpu.gpus import SURVIVABILITY

ATTRIBUTES: Final[Mapping[str, Sequence[str]]] = {"pci": [SURVIVABILITY, "gpu_health"]}
"""Names of attributes by subsystem."""
