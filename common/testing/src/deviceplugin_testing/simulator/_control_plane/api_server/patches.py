"""Merge patches (RFC 7396)."""

from copy import deepcopy
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.kinds import Object

MERGE: Final = "application/merge-patch+json"


def merged(found: Object, patch: Object) -> Object:
    """Return ``found`` as the patch says: ``None`` removes a key, objects are merged."""
    result = deepcopy(found)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            inner: Any = result.get(name)
            result[name] = merged(inner if isinstance(inner, dict) else {}, value)
        else:
            result[name] = deepcopy(value)
    return result
