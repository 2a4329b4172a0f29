"""The account of documents some of which were made of others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from deviceplugin.kit.migration import Account, Path

Origins = Callable[[Path], Iterable[Path]]
"""Returns, for a path in a document without its number, what it was made of: none if of nothing."""


class Accounts(Account):
    """An account to which documents can be added, as a text in a document that is YAML itself.

    A document with origins only stands for others. What becomes of a path in it becomes of what it
    was made of, under whose name it is listed.
    """

    def __init__(self, documents: Iterable[tuple[str, Any]]) -> None:
        self._all = [*documents]
        super().__init__(self._all)
        self._origins: dict[Any, Origins] = {}
        self._refused: dict[Path, str] = {}

    def add(self, place: str, content: Any, origins: Origins | None = None) -> int:
        """Add a document, and return its number."""
        self._all.append((place, content))
        number = len(self._all) - 1
        if origins:
            super().take((number,))
            self._origins[number] = origins
        return number

    def get(self, path: Path) -> Any:
        for one in self._ends(path):
            super().get(one)
        return super().get(path)

    def take(self, path: Path) -> None:
        for one in self._ends(path):
            super().take(one)

    def drop(self, path: Path, why: str) -> None:
        for one in self._ends(path):
            super().drop(one, why)

    def doubt(self, path: Path) -> None:
        for one in self._ends(path):
            super().doubt(one)

    def refuse(self, path: Path, why: str) -> None:
        """Note that what is at ``path`` cannot be read, whoever takes it, and what to do."""
        for one in self._ends(path):
            self._refused.setdefault(one, why)

    def knows(self, path: Path) -> bool:
        return any(super(Accounts, self).knows(one) for one in self._ends(path))

    def name(self, path: Path) -> str:
        return super().name(next(iter(self._ends(path)), path))

    def dropped(self, below: Path = ()) -> list[tuple[Path, str]]:
        found = dict(super().dropped())
        return [
            (path, why)
            for path, why in found.items()
            if any(path[: len(one)] == one for one in self._ends(below))
            and not any(path[:end] in found for end in range(len(path)))
        ]

    def left(self) -> list[str]:
        """Return what was refused, and what nothing has become of."""
        refused = [
            ": ".join(filter(None, (self._all[int(path[0])][0], self.name(path), why)))
            for path, why in self._refused.items()
            if not any(self._reasons.get(path[:end]) for end in range(len(path)))
        ]
        for path in self._refused:
            super().take(path)
        return [*refused, *super().left()]

    def _ends(self, path: Path) -> list[Path]:
        origins = self._origins.get(path[0]) if path else None
        if origins is None:
            return [path]
        return [end for one in origins(path[1:]) for end in self._ends(one)]


def made_of(origins: Mapping[Path, Iterable[Path]]) -> Origins:
    """Return the origins of a document by the paths of its parts.

    Below a part is what is below its origins. A path above parts stands for all of them.
    """

    def find(path: Path) -> Iterator[Path]:
        for length in range(len(path), -1, -1):
            if path[:length] in origins:
                yield from ((*one, *path[length:]) for one in origins[path[:length]])
                return
        for part, found in origins.items():
            if part[: len(path)] == path:
                yield from found

    return find
