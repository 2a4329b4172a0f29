"""Files of smarter-device-manager: a list of patterns, each with a number of shares."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from deviceplugin.kit.configuration import InvalidError, Place
from deviceplugin_generic.configuration.entries import Configuration, Rule
from deviceplugin_generic.configuration.grammar import RULE

DOMAIN: Final = "smarter-devices"
_GPUS: Final = "nvidia-gpu"
"""This is not a pattern in such a file, but means the GPUs of a Jetson."""


def read(root: Place) -> dict[str, Any]:
    """Return the domain and the configuration in a file. Faults are collected."""
    left_out: list[str] = []
    rules = tuple(_rules(root.items(), left_out))
    found = Configuration((), rules, is_given=True, place=str(root), left_out=tuple(left_out))
    return {"domain": DOMAIN, "configuration": found}


def _rules(places: list[Place], left_out: list[str]) -> Iterator[Rule]:
    for place in places:
        with suppress(InvalidError):
            rule = RULE.read(place)
            if rule.pattern == _GPUS:
                left_out.append(f"{place}: {_GPUS} is not for this plugin: deploy the gpu plugin")
            else:
                yield rule
