"""What a request is about, and which objects it wants."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from deviceplugin_testing.simulator._control_plane.kinds import RESOURCE, Kind, Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    RefusedError,
    bad_request,
    invalid_options,
    unknown_address,
    unsupported,
)

_PATH: Final = re.compile(
    r"(?P<root>/api/v1|/apis/[\w.-]+/v\w+)(?:/namespaces/(?P<space>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?"
)
_COMMON: Final = ("metadata.name", "metadata.namespace")
_NOT_OLDER: Final = "NotOlderThan"
_TRUE: Final = frozenset({"1", "true"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request for objects."""

    kind: Kind
    namespace: str
    name: str
    part: str
    """The subresource, such as ``status``."""
    query: Mapping[str, list[str]]

    @classmethod
    def of(cls, address: str, kinds: Iterable[Kind]) -> "Request":
        """Return what is at ``address``.

        Raises:
            RefusedError: There is nothing, or an option is not a number.
        """
        parts = urlsplit(address)
        query = parse_qs(parts.query, keep_blank_values=True)
        for option in ("timeoutSeconds", "limit"):
            given = query.get(option, ["0"])[0]
            if not given.isdecimal():
                raise bad_request(f'strconv.ParseInt: parsing "{given}": invalid syntax')
        found = _PATH.fullmatch(parts.path)
        for kind in kinds if found else ():
            if (kind.root, kind.plural) == (found["root"], found["plural"]):  # type: ignore[index]
                space, name, part = (found[one] or "" for one in ("space", "name", "part"))  # type: ignore[index]
                return cls(kind, space, name, part, query)
        raise unknown_address()

    def option(self, name: str) -> str:
        """Return an option of the address, or an empty string."""
        return self.query.get(name, [""])[0]

    def is_on(self, name: str) -> bool:
        """Return whether an option is true."""
        return self.option(name) in _TRUE

    def is_dry_run(self) -> bool:
        """Return whether nothing is to be written; ``RefusedError`` as a real server's."""
        given = self.query.get("dryRun", [])
        if given not in ([], ["All"]):
            error = unsupported("dryRun", given, ["All"])
            raise invalid_options("CreateOptions", error)
        return bool(given)

    def number(self, name: str) -> int:
        """Return an option as a number, 0 if it is not there."""
        return int(self.option(name) or 0)

    def version(self) -> int:
        """Return the resource version that the request names, 0 if none."""
        given = self.option("resourceVersion")
        if given and not given.isdecimal():
            problem = f'strconv.ParseUint: parsing "{given}": invalid syntax'
            raise RefusedError(500, "", f'resourceVersion: Invalid value: "{given}": {problem}')
        return int(given or 0)

    def asks_for_beginning(self) -> bool:
        """Return whether a watch begins with what is there; ``RefusedError`` as a real server's.

        By default it does unless it names a version.
        """
        said, match = self.option("sendInitialEvents"), self.option("resourceVersionMatch")
        own, problem = "resourceVersionMatch", ""
        if said and match != _NOT_OLDER:
            problem = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        elif match and not said:
            problem = f"{own} is forbidden for watch unless sendInitialEvents is provided"
        if problem:
            message = f'ListOptions.meta.k8s.io "" is invalid: {own}: Forbidden: {problem}'
            raise RefusedError(422, "Invalid", message)
        if said:
            return said in _TRUE
        return self.version() == 0

    def filter(self) -> Callable[[Object], bool]:
        """Return whether an object is wanted, as a function.

        Raises:
            RefusedError: A selector cannot be understood, or names an unknown field.
        """
        fields = [*_terms(self.option("fieldSelector"), "invalid selector")]
        for path, _, _ in fields:
            if path not in (*_COMMON, *self.kind.selectable):
                raise bad_request(_unknown_field(self.kind, path))
        labels = [*_terms(self.option("labelSelector"), "unable to parse requirement")]

        def wants(found: Object) -> bool:
            if self.namespace not in {"", found["metadata"].get("namespace", "")}:
                return False
            own: Mapping[str, str] = found["metadata"].get("labels", {})
            has_labels = all(
                (own.get(key) == value) == same if same is not None else key in own
                for key, same, value in labels
            )
            return has_labels and all(
                (_field(found, path) == value) == same for path, same, value in fields
            )

        return wants


def _terms(selector: str, problem: str) -> Iterable[tuple[str, bool | None, str]]:
    """Yield key, whether the value is wanted or None if any is, and value."""
    for term in filter(None, selector.split(",")):
        key, operator, value = re.split(r"(!=|==?|$)", term, maxsplit=1)
        is_field = problem == "invalid selector"
        if is_field and not operator:
            raise bad_request(f"{problem}: '{term}'; can't understand '{term}'")
        if " " in key.strip():
            found = key.split()[1]
            words = "expected: in, notin, =, ==, !=, gt, lt"
            raise bad_request(f"{problem}: found '{found}', {words}")
        yield key, None if not operator else operator != "!=", value


def _unknown_field(kind: Kind, path: str) -> str:
    if kind.group == RESOURCE and kind.selectable:
        return f"field label not supported for {kind.api_version}, Kind={kind.name}: {path}"
    if kind.selectable:
        return f"field label not supported: {path}"
    known = ", ".join(f'"{one}"' for one in _COMMON)
    return f'"{path}" is not a known field selector: only {known}'


def _field(found: Object, path: str) -> str:
    place: Any = found
    for name in path.split("."):
        place = place.get(name) if isinstance(place, dict) else None
    if isinstance(place, bool):
        return str(place).lower()
    return "" if place is None else str(place)
