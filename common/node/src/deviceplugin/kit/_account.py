"""What becomes of every key of the documents that are migrated."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
                found = found.get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
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
        lines = [
            f"{self._documents[int(path[0])][0]}: {self.name(path)}: "
            f"not understood{self._meant(path)}"
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
        if path:
            self._asked.setdefault(path[:-1], set()).add(str(path[-1]))

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
        name = found.get("name") if isinstance(found, Mapping) else None
        return name if isinstance(name, str) and _NAME.fullmatch(name) else ""

    def _open(self, path: Path, content: Any) -> Iterator[Path]:
        if path in self._reasons or is_absent(content):
            return
        is_list = isinstance(content, list)
        if path in self._doubts or not (is_list or isinstance(content, Mapping)):
            yield path
            return
        below = list(enumerate(content) if is_list else content.items())
        inside = [self._open((*path, key), one) for key, one in below]
        found = [one for each in inside for one in each]
        # What nobody knows anything of is one unknown key. Items may have been asked for by name.
        is_known = self.knows(path) or bool(self._doubts.keys() & {*found})
        is_known = is_known or len(path) == 1 or (is_list and path in self._asked)
        yield from [path] if found and not is_known else found

    def _meant(self, path: Path) -> str:
        there = self._at(path[:-1])
        is_item = isinstance(there, list)
        names = [self._title((*path[:-1], index)) for index in range(len(there))] if is_item else []
        given = names or [str(one) for one in there or ()]
        wrong = self._title(path) if is_item else str(path[-1])
        unused = sorted(self._asked.get(path[:-1], set()) - {*given})
        near = nearest(wrong, unused)
        return f": did you mean {near!r}?" if wrong and near else ""


def is_absent(value: Any) -> bool:
    return value is None or value in ({}, [])
