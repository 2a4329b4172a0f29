"""What ``deviceplugin record`` writes down of FPGAs, beyond what it does of any device."""

from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin_fpga.health import DETAILS, OF_FME, OF_PORT

ATTRIBUTES: Final[Mapping[str, Sequence[str]]] = {
    "fpga": [],
    "fpga_region": ["compat_id"],
    "platform": [
        *("afu_id", "id", "pr/interface_id"),
        *(f"errors/{name}" for name in (*OF_PORT, *OF_FME, *DETAILS)),
    ],
}
"""Names of attributes by subsystem. Ports and engines are platform devices."""
