"""Files of smarter-device-manager: a list of patterns, each with a number of shares."""

import re
from collections.abc import Iterator
from typing import Any, Final

from deviceplugin_generic import words
from deviceplugin_generic.cursors import Cursor
from deviceplugin_generic.entries import MAX_COUNT, Configuration, Rule

DOMAIN: Final = "smarter-devices"
_GPUS: Final = "nvidia-gpu"
"""Is no pattern there: it stands for the GPUs of a Jetson."""


def read(root: Cursor) -> dict[str, Any]:
    """Return the domain and the configuration in a file; what is wrong is noted."""
    items = root.items()
    left_out = tuple(_left_out(items))
    rules = [_rule(cursor) for cursor in items]
    found = tuple(rule for rule in rules if rule is not None and rule.pattern != _GPUS)
    return {
        "domain": DOMAIN,
        "configuration": Configuration((), found, place=root.place, left_out=left_out),
    }


def _left_out(items: list[Cursor]) -> Iterator[str]:
    for cursor in items:
        keys = cursor.mapping() if cursor.kind == "mapping" else {}
        if "devicematch" in keys and keys["devicematch"].raw == _GPUS:
            yield f"{cursor.place}: {_GPUS} is not for this plugin: deploy the gpu plugin"


def _rule(cursor: Cursor) -> Rule | None:
    keys = cursor.mapping(words.RULE)
    for key in words.RULE:
        if cursor.kind == "mapping" and key not in keys:
            cursor.fault(f"needs {key}")
    pattern = keys["devicematch"].text() if "devicematch" in keys else None
    limit = keys.get("nummaxdevices")
    count = limit.number(most=MAX_COUNT) if limit else None
    if pattern is None:
        return None
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        keys["devicematch"].fault(f"{pattern!r} is not a regular expression: {error}")
    return Rule(pattern, count or 0)
