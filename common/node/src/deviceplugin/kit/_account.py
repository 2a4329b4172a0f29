"""What becomes of every key of the documents that are migrated."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from deviceplugin._config.documents.faults import MOST, bounded, nearest, printable

Path = tuple[str | int, ...]
"""Where a value stands in the input: the number of its document from 0, then keys and indexes."""

_NAME: Final = re.compile(r"[-\w.]{1,63}")


class Account:
    """What becomes of every key of the documents that are migrated.

    A path stands for all that is below it, unless something else was noted there. Null, an empty
    mapping and an empty list are absent, as Go's programs read them.
    """

    def __init__(self, documents: Sequence[tuple[str, Any]] = ()) -> None:
        """``documents`` are places, for messages, and contents."""
        self._documents = documents
        self._reasons: dict[Path, str] = {}
        self._known: set[Path] = set()
        self._doubts: dict[Path, None] = {}
        self._asked: dict[Path, set[str]] = {}

    def get(self, path: Path) -> Any:
        """Return the value at ``path``, which nothing becomes of by that; None if it is absent.

        The item of a list may be asked for by its ``name``, so that it can be suggested.
        """
        self._ask(path)
        return self._at(path)

    def _at(self, path: Path) -> Any:
        found: Any = [content for _, content in self._documents]
        for step in path:
            if isinstance(found, Mapping):
                found = cast("Mapping[str | int, Any]", found).get(step)
            elif isinstance(found, list) and isinstance(step, int):
                found = next(iter(cast("Sequence[Any]", found)[step : step + 1]), None)
            else:
                return None
        return found

    def take(self, path: Path) -> None:
        """Note that what is at ``path`` is taken over, or is nobody's wish, as a default is."""
        self._ask(path)
        self._note(path, "")

    def drop(self, path: Path, why: str) -> None:
        """Note that what is at ``path``, if it is there, is not taken over, and why: a phrase."""
        if not is_absent(self.get(path)) and path not in self._reasons:
            self._note(path, why)

    def doubt(self, path: Path) -> None:
        """Note that the key at ``path`` is wrong there, whatever becomes of what is above it."""
        self._doubts[path] = None

    def knows(self, path: Path) -> bool:
        """Return whether something at ``path`` or below it was taken or dropped."""
        return path in self._known

    def name(self, path: Path) -> str:
        """Return a path for messages, without its document; items of lists by their names."""
        steps = [self._step(path[: end + 1]) for end in range(1, len(path))]
        return bounded("".join(steps).removeprefix("."))

    def objects(self, kind: str) -> Iterator[tuple[Path, str]]:
        """Yield path and place of each object of the input that is of a kind."""
        for number, (place, content) in enumerate(self._documents):
            if content.get("kind") == kind:
                yield (number,), f"{place}: {kind} {self.get((number, 'metadata', 'name'))}"

    def dropped(self, below: Path = ()) -> list[tuple[Path, str]]:
        """Return what is not taken over, and why; nothing that is below another such path."""
        found = {path: why for path, why in self._reasons.items() if why}
        return [
            (path, why)
            for path, why in found.items()
            if path[: len(below)] == below
            and not any(path[:end] in found for end in range(len(path)))
        ]

    def left(self) -> list[str]:
        """Return what nothing has become of: place, key, and the key that may have been meant."""
        paths = self.left_paths()
        unused = {above: self._unused(above) for above in {path[:-1] for path in paths[:MOST]}}
        lines = [
            f"{self._documents[int(path[0])][0]}: {self.name(path)}: "
            f"not understood{self._meant(path, unused[path[:-1]])}"
            for path in paths[:MOST]
        ]
        more = len(paths) - MOST
        return [*lines, f"{more} more keys: not understood"] if more > 0 else lines

    def left_paths(self) -> list[Path]:
        """Return the paths of what nothing has become of."""
        found = {
            path: None
            for number, (_, content) in enumerate(self._documents)
            for path in self._open((number,), content)
        }
        below = [
            path
            for path in self._doubts
            if not any(path[:end] in found for end in range(len(path) + 1))
        ]
        return [*found, *below]

    def _ask(self, path: Path) -> None:
        for end in range(1, len(path) + 1):
            self._asked.setdefault(path[: end - 1], set()).add(str(path[end - 1]))

    def _note(self, path: Path, why: str) -> None:
        self._reasons[path] = why
        self._known.update(path[:end] for end in range(len(path) + 1))

    def _step(self, path: Path) -> str:
        if not isinstance(path[-1], int):
            return f".{printable(str(path[-1]))}"
        return f"[{self._title(path) or path[-1]}]"

    def _title(self, path: Path) -> str:
        """Return the name of an item of a list; an empty one if it has none."""
        found = self._at(path)
        is_named = isinstance(found, Mapping) and "name" in found
        name = cast("Mapping[str | int, Any]", found)["name"] if is_named else None
        return name if isinstance(name, str) and _NAME.fullmatch(name) else ""

    def _open(self, path: Path, content: Any) -> Iterator[Path]:
        if path in self._reasons or is_absent(content):
            return
        is_list = isinstance(content, list)
        if path in self._doubts or not (is_list or isinstance(content, Mapping)):
            yield path
            return
        below: list[tuple[str | int, Any]] = (
            list(enumerate(cast("Sequence[Any]", content)))
            if is_list
            else list(cast("Mapping[str | int, Any]", content).items())
        )
        inside = [self._open((*path, key), one) for key, one in below]
        found = [one for each in inside for one in each]
        # What nobody knows anything of is one unknown key. Items may have been asked for by name.
        is_known = self.knows(path) or bool(self._doubts.keys() & {*found})
        is_known = is_known or len(path) == 1 or (is_list and path in self._asked)
        yield from [path] if found and not is_known else found

    def _unused(self, path: Path) -> list[str]:
        """Return the keys, or names of items, that were asked for and are not there."""
        there = self._at(path)
        given = {str(one) for one in there or ()}
        if isinstance(there, list):
            number = len(cast("Sequence[Any]", there))
            given = {self._title((*path, index)) for index in range(number)}
        return sorted(self._asked.get(path, set()) - given)

    def _meant(self, path: Path, unused: Sequence[str]) -> str:
        wrong = self._title(path) if isinstance(path[-1], int) else str(path[-1])
        near = nearest(wrong, unused) if wrong else ""
        return f": did you mean {near!r}?" if near else ""


def is_absent(value: Any) -> bool:
    return value is None or value in ({}, [])
