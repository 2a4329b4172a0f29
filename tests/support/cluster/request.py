"""What a request to the stand-in for an API server is about, and what of a list it asks for."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cluster.kinds import EVENT, KINDS, Kind, Object
from cluster.store import RefusedError

_PATH = re.compile(
    r"/(?P<group>api/v1|apis/[\w.-]+/v1\w*)(/namespaces/(?P<space>[\w.-]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(/(?P<name>[^/]+))?(/(?P<part>[a-z]+))?"
)

_NOT_OLDER = "NotOlderThan"
_TRUE = {"1", "true"}


@dataclass(frozen=True)
class Request:
    """One request for objects."""

    kind: Kind
    namespace: str
    name: str
    part: str
    """Of the object: its log, for example."""
    query: dict[str, list[str]]

    @classmethod
    def of(cls, address: str) -> "Request":
        """Parse an address; ``RefusedError`` if there is nothing at it."""
        parts = urlsplit(address)
        found = _PATH.fullmatch(parts.path)
        if found is None:  # as for a namespace itself, which is in none
            raise missing(parts.path)
        seconds = parse_qs(parts.query).get("timeoutSeconds", ["0"])[0]
        if not seconds.isdecimal():
            problem = f'strconv.ParseInt: parsing "{seconds}": invalid syntax'
            raise RefusedError(400, "BadRequest", problem)
        for kind in KINDS:
            if (kind.path, kind.plural) == (found["group"], found["plural"]):
                own = (found["space"] or "", found["name"] or "", found["part"] or "")
                return cls(kind, *own, parse_qs(parts.query, keep_blank_values=True))
        raise missing(parts.path)

    def option(self, name: str) -> str:
        return self.query.get(name, [""])[0]

    def asks_for_beginning(self) -> bool:
        """Return whether a watch begins with what is there; ``RefusedError`` as a real server's.

        Who says nothing gets it unless a version is named, as before there was a way to say it.
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
        return self.option("resourceVersion") in {"", "0"}

    def asks_for_bookmarks(self) -> bool:
        return self.option("allowWatchBookmarks") in _TRUE

    def page(self, found: list[Object]) -> tuple[list[Object], str]:
        """Return the part of a list that is asked for, and how to ask for the next."""
        start, most = int(self.option("continue") or 0), int(self.option("limit") or 0)
        end = start + most if most else len(found)
        return found[start:end], str(end) if end < len(found) else ""

    def wants(self, found: Object) -> bool:
        """Tell whether an object is among those that are asked for."""
        if self.namespace not in {"", found["metadata"].get("namespace", "")}:
            return False
        labels = found["metadata"].get("labels", {})
        return _all(self.option("labelSelector"), labels.get) and _all(
            self.option("fieldSelector"), lambda path: _field(found, path)
        )


def missing(path: str) -> RefusedError:
    return RefusedError(
        404, "NotFound", f"the server could not find the requested resource ({path})"
    )


def _all(selector: str, read: Callable[[str], Any]) -> bool:
    for term in filter(None, selector.split(",")):
        key, same, value = re.split(r"(!=|==?|$)", term, maxsplit=1)
        found = read(key)
        if not same and found is None:
            return False
        if same and (str(found or "") == value) == (same == "!="):
            return False
    return True


def _field(found: Object, path: str) -> Any:
    place: Any = found
    for name in path.split("."):
        place = place.get(name) if isinstance(place, dict) else None
    return place


def bookmark(kind: Kind, version: int) -> Object:
    """Return what ends the beginning of a watch: what was there has been sent."""
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}


def listed(
    kind: Kind, objects: list[Object], version: int, *, table: bool, rest: str = ""
) -> Object:
    """Return the answer to a list: the objects, or what kubectl prints of Events."""
    metadata = {"resourceVersion": str(version), **({"continue": rest} if rest else {})}
    if not table or kind != EVENT:
        made = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
        return {**made, "metadata": metadata, "items": objects}
    columns = ("Last Seen", "Type", "Reason", "Object", "Message")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
            for name in columns
        ],
        "rows": [{"cells": _cells(one), "object": one} for one in objects],
    }


def _cells(event: Object) -> list[str]:
    about = event["involvedObject"]
    seen = event.get("lastTimestamp") or event.get("eventTime") or ""
    name = f"{about['kind'].lower()}/{about['name']}"
    return [seen, event.get("type", ""), event.get("reason", ""), name, event.get("message", "")]
