"""What a setting is called: in files, among the flags, in the environment."""

from collections.abc import Sequence
from dataclasses import Field
from typing import Any, Final

PREFIX: Final = "DP_"
"""What the names of environment variables begin with."""
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
"""Variable with the path of the configuration file, for want of the flag."""


def key(field: "Field[Any]") -> str:
    """Return the name of ``field`` in files; ``--`` in front of it makes the flag."""
    return field.name.replace("_", "-")


def variable(field: "Field[Any]") -> str:
    """Return the name of the environment variable of ``field``."""
    return PREFIX + field.name.upper()


def variables(field: "Field[Any]") -> list[str]:
    """Return all variables that can set ``field``, the strongest first.

    All but the first are those that the field asks for, by ``field(metadata={"env": "SERIAL"})``
    or with a tuple of names.
    """
    return [variable(field), *_names(field, "env")]


def flags(field: "Field[Any]") -> list[str]:
    """Return all flags that set ``field``; others by ``field(metadata={"flag": "--serial"})``."""
    return [f"--{key(field)}", *_names(field, "flag")]


def _names(field: "Field[Any]", kind: str) -> Sequence[str]:
    own = field.metadata.get(kind, ())
    return (own,) if isinstance(own, str) else own
