"""The setting that says in which ways containers are told of their devices."""

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Self

from deviceplugin_gpu.configuration.values import refuse

_STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")


@dataclass(frozen=True)
class Strategies:
    """The ways in which containers are told of their devices."""

    names: tuple[str, ...] = ("envvar",)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the strategies in texts with commas, or in a list.

        Raises:
            ConfigError: One of them is not known, or there is none.
        """
        if isinstance(value, cls):
            return value
        parts = value if isinstance(value, list) else [value]
        refuse(["is empty: name one of " + ", ".join(_STRATEGIES)] if not parts else [])
        names = [name.strip() for part in parts for name in str(part).split(",")]
        refuse([_unknown(name, _STRATEGIES) for name in names if name not in _STRATEGIES])
        return cls(tuple(sorted(set(names), key=_STRATEGIES.index)))

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


def _unknown(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return f"{name!r} is none of {', '.join(known)}{hint}"
