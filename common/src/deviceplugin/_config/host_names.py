"""Names of machines."""

import re
from collections.abc import Mapping
from typing import Any, Final

_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME: Final = rf"{_LABEL}(\.{_LABEL})*"


class HostName(str):
    """The name of a machine, without a port."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "HostName":
        """Return ``value`` as a name; raise ``ValueError`` if it is none."""
        if not isinstance(value, str) or not re.fullmatch(_NAME, value):
            raise ValueError(f"has {value!r}, which is not a name such as node-1.example.com")
        return cls(value)

    @classmethod
    def schema(cls) -> Mapping[str, Any]:
        """Return the JSON schema of a name."""
        return {"type": "string", "pattern": f"^{_NAME}$"}
