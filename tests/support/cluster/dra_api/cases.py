"""All requests about devices whose answers are recorded.

The answers are in ``answers.json``, as the API server of Kubernetes 1.36.2 gave them. Times, UIDs,
versions and random names are left out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cluster.dra_api.asking import Case
from cluster.dra_api.claims import CLAIM_CASES, CLASS_CASES, POD_CASES
from cluster.dra_api.events import EVENT_CASES
from cluster.dra_api.limits import DROPPED, LIMITS, LISTS
from cluster.dra_api.writes import METADATA, QUANTITIES, WRITES

GATES: Final = MappingProxyType({"DRAListTypeAttributes": True})
"""Of the servers that are asked the cases of ``LISTS``."""
NO_COUNTERS: Final = MappingProxyType({"DRAPartitionableDevices": False})
"""Of those that are asked the cases of ``DROPPED``."""
CASES: Final[Mapping[str, Case]] = {
    **LIMITS,
    **QUANTITIES,
    **METADATA,
    **WRITES,
    **CLAIM_CASES,
    **CLASS_CASES,
    **POD_CASES,
    **LISTS,
    **DROPPED,
    **EVENT_CASES,
}
