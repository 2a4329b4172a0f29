"""What ``deviceplugin record`` writes down for the recipes, beyond what it does of any device."""

from collections.abc import Mapping, Sequence
from typing import Final

ATTRIBUTES: Final[Mapping[str, Sequence[str]]] = {"tenstorrent": ["tt_card_type"]}
"""Names of attributes by subsystem. A configuration of your own may select by any other."""
