"""Variables of the environment that are no settings, or have no effect."""

import os
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from deviceplugin._config import values as _values
from deviceplugin._config.documents import faults
from deviceplugin._config.loading import CONFIG_VARIABLE, PREFIX, key, variable, variables
from deviceplugin.errors import ConfigError

if TYPE_CHECKING:
    from deviceplugin._config.settings import Settings


def suspicious_variables(
    settings: "type[Settings]", environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return variables that look like misspelt settings, each with the name it resembles.

    They are not errors: Kubernetes puts a service called ``dp-...`` into the environment.
    """
    known = [CONFIG_VARIABLE, *(variable(field) for field in fields(settings))]
    given = os.environ if environ is None else environ
    odd = [name for name in given if name.startswith(PREFIX) and name not in known]
    near = {name: faults.nearest(name, known, 0.8) for name in odd}
    return {name: match for name, match in near.items() if match}


def hidden_variables(
    settings: "type[Settings]", flags: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return variables that have no effect, each with the flag or variable that overrides it.

    Variables that are empty, or have the value of the winner, are omitted. ``flags`` is as for
    ``load``, and may have the path of the configuration file as ``config``.
    """
    environ = os.environ if environ is None else environ
    types = typing.get_type_hints(settings)
    hidden: dict[str, str] = {}
    named = environ.get(CONFIG_VARIABLE)
    if named and flags.get("config") and named != str(flags["config"]):
        hidden[CONFIG_VARIABLE] = "--config"
    for field in fields(settings):
        name, kind = key(field), types[field.name]
        given: dict[str, Any] = {f"--{name}": flags[name]} if name in flags else {}
        given |= {each: environ[each] for each in variables(field) if environ.get(each)}
        winner, *others = given or [""]
        hidden |= {x: winner for x in others if not _are_same(given[x], given[winner], kind)}
    return hidden


def _are_same(one: Any, other: Any, kind: Any) -> bool:
    try:
        return bool(_values.parse(one, kind) == _values.parse(other, kind))
    except (ValueError, ConfigError):
        return bool(one == other)
