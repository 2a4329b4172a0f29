"""The setting that says how containers learn of their devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import suggestion

STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")


@dataclass(frozen=True)
class Strategies:
    """How containers learn of their devices: one strategy or several."""

    names: tuple[str, ...] = ("envvar",)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the strategies in strings with commas, or in a list.

        Raises:
            ConfigError: One of them is not known, or there is none.
        """
        if isinstance(value, cls):
            return value
        parts = value if isinstance(value, list) else [value]
        if not parts:
            raise dp.ConfigError("is empty: name one of " + ", ".join(STRATEGIES))
        names = [name.strip() for part in parts for name in str(part).split(",")]
        if problems := [_unknown(name) for name in names if name not in STRATEGIES]:
            raise dp.ConfigError("\n".join(problems))
        return cls(tuple(sorted(set(names), key=STRATEGIES.index)))

    @staticmethod
    def schema() -> Mapping[str, Any]:
        """Return what stands in a file, for editors; one text with commas may stand there too."""
        return {"type": "array", "items": {"type": "string", "enum": [*STRATEGIES]}, "minItems": 1}

    def write(self) -> list[str]:
        """Return their names."""
        return list(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def cdi(self) -> bool:
        """Whether CDI is used."""
        return any(name.startswith("cdi-") for name in self.names)

    @property
    def plain(self) -> bool:
        """Whether anything but CDI is used."""
        return any(not name.startswith("cdi-") for name in self.names)


def _unknown(name: str) -> str:
    near = suggestion(name, STRATEGIES)
    hint = f": {near}" if near.startswith("did") else ""
    return f"{name!r} is not one of {', '.join(STRATEGIES)}{hint}"
