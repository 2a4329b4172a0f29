"""The selectors of device classes and claims, as far as the simulated scheduler understands CEL.

That is equality of the driver and of attributes, joined by ``&&``, as in most drivers' classes.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.kinds import Object

_TERM: Final = re.compile(
    r"""\s*device\.(?:(?P<driver>driver)|attributes\[(?P<domain>"[^"\\]*"|'[^'\\]*')\]\.(?P<name>\w+))"""
    r"""\s*==\s*(?P<value>"[^"\\]*"|'[^'\\]*'|-?\d+|true|false)\s*""",
    re.ASCII,
)
_UNKNOWN: Final = (
    'not simulated: use device.driver == "…" and device.attributes["domain"].name == …, with &&'
)


class SelectorError(Exception):
    """A selector cannot be evaluated for a device; the scheduler then gives up on the claim."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device and its driver."""

    driver: str
    device: Object

    def attribute(self, domain: str, name: str) -> Any:
        """Return the value of an attribute; raise ``SelectorError`` if there is none."""
        attributes: Mapping[str, Object] = self.device.get("attributes", {})
        found = attributes.get(f"{domain}/{name}")
        if found is None and domain == self.driver:
            found = attributes.get(name)
        if found is None:
            raise SelectorError(f"no such key: {name}")
        return next(iter(found.values()))


Selector = Callable[[Candidate], bool]


def parse_selector(expression: str) -> Selector:
    """Return whether a candidate is selected, as a function; raise ``ValueError``."""
    terms = [_term(term) for term in expression.split("&&")]
    return lambda candidate: all(term(candidate) for term in terms)


def _term(text: str) -> Selector:
    found = _TERM.fullmatch(text)
    if found is None:
        raise ValueError(_UNKNOWN)
    wanted = _literal(found["value"])
    if found["driver"]:
        if not isinstance(wanted, str):
            raise ValueError(_UNKNOWN)
        return lambda candidate: bool(candidate.driver == wanted)
    domain, name = _literal(found["domain"]), found["name"]
    return lambda candidate: _same(candidate.attribute(domain, name), wanted)


def _literal(text: str) -> Any:
    return text[1:-1] if text[0] in "'\"" else json.loads(text)


def _same(value: Any, wanted: Any) -> bool:
    return type(value) is type(wanted) and bool(value == wanted)
