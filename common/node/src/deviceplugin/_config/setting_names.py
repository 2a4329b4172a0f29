"""The names of a setting: in files, as a flag, in the environment."""

from collections.abc import Sequence
from dataclasses import Field
from typing import Any, Final

PREFIX: Final = "DP_"
"""The prefix of environment variables."""
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
"""The variable with the path of the configuration file. The flag wins over it."""


def key(field: "Field[Any]") -> str:
    """Return the name of ``field`` in files; ``--`` in front of it makes the flag."""
    return field.name.replace("_", "-")


def variable(field: "Field[Any]") -> str:
    """Return the name of the environment variable of ``field``."""
    return PREFIX + field.name.upper()


def variables(field: "Field[Any]") -> list[str]:
    """Return all variables that can set ``field``, the strongest first.

    A field can add some to its own: ``field(metadata={"env": "SERIAL"})``, or a tuple of names.
    """
    return [variable(field), *_names(field, "env")]


def flags(field: "Field[Any]") -> list[str]:
    """Return all flags that set ``field``.

    A field can add some to its own: ``field(metadata={"flag": "--serial"})``, or a tuple of them.
    """
    return [f"--{key(field)}", *_names(field, "flag")]


def _names(field: "Field[Any]", kind: str) -> Sequence[str]:
    own = field.metadata.get(kind, ())
    return (own,) if isinstance(own, str) else own
