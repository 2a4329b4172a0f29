"""As which resources the devices of DRA drivers count."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from deviceplugin._config.slices import PART

Object = Mapping[str, Any]
_Terms = Sequence[tuple[str, str]]
WRONG: Final = (LookupError, TypeError, AttributeError, ValueError)
"""What is raised for an object that is not as the API server would accept it."""
RESOURCE: Final = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}/[A-Za-z0-9][-\w.]{0,62}", re.ASCII)
_TERM: Final = re.compile(
    r"""\s*device\.(?:driver|attributes\[(["'])(?P<domain>[^"']+)\1\]\.(?P<name>\w+))"""
    r"""\s*==\s*(?:(["'])(?P<text>[^"']*)\4|(?P<bare>-?\d+|true|false))\s*"""
)


class Names:
    """As which resource devices count: that of a DeviceClass, or their own, or else their driver.

    A class is understood if it selects a driver, and attributes by equality. The name of a driver
    has no slash, and that of a resource has one.
    """

    def __init__(self, classes: Iterable[Object] = ()) -> None:
        self._by_driver: dict[str, list[tuple[str, _Terms]]] = defaultdict(list)
        self.by_class: dict[str, str] = {}
        for one in classes:
            with suppress(*WRONG):
                self._add(one["metadata"]["name"], one["spec"])

    def _add(self, name: str, spec: Object) -> None:
        resource = spec.get("extendedResourceName") or ""
        if not RESOURCE.fullmatch(resource):
            return
        self.by_class[name] = resource
        found = [_TERM.fullmatch(text) for text in _expressions(spec)]
        terms = [
            (f"{m['domain'] or ''}/{m['name'] or ''}", m["text"] or m["bare"]) for m in found if m
        ]
        drivers = {value for key, value in terms if key == "/"}
        if None not in found and len(drivers) == 1:
            own = [term for term in terms if term[0] != "/"]
            self._by_driver[drivers.pop()].append((resource, own))

    def of(self, driver: str, attributes: Object) -> str:
        values = {
            key if "/" in key else f"{driver}/{key}": _written(value)
            for key, value in attributes.items()
        }
        for resource, terms in self._by_driver.get(driver, ()):
            if all(values.get(key) == value for key, value in terms):
                return resource
        own = values.get(f"{driver}/resource", "").removesuffix(PART)
        return own if RESOURCE.fullmatch(own) else driver


def _expressions(spec: Object) -> Iterator[str]:
    for one in spec["selectors"]:
        yield from one["cel"]["expression"].split("&&")


def _written(value: Object) -> str:
    """Return an attribute's value as an expression has it."""
    (found,) = value.values()
    return str(found).lower() if isinstance(found, bool) else str(found)
