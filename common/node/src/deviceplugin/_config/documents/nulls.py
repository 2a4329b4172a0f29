"""Null in what programs in Go write: as absent as a key that is not there."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_DEPTH: Final = 20


def without_nulls(found: object, depth: int = _DEPTH) -> Any:
    """Return ``found`` without keys that are null, down to ``depth`` levels."""
    if depth and isinstance(found, dict):
        items = cast("Mapping[str, Any]", found).items()
        return {key: without_nulls(one, depth - 1) for key, one in items if one is not None}
    if depth and isinstance(found, list):
        return [without_nulls(one, depth - 1) for one in cast("Sequence[Any]", found)]
    return found
