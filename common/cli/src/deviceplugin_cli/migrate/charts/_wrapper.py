"""An object that gives values to a Helm chart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._containers import Release
from deviceplugin_cli.migrate._documents import Document, Input
from deviceplugin_cli.migrate.charts._layers import Layer, merged, of_text
from deviceplugin_cli.migrate.charts._rendering import Values


class Wrapper:
    """An object that gives values to a chart."""

    def __init__(self, document: Document, source: Input, release: Release) -> None:
        self.document = document
        self.source = source
        self.account = source.account
        self.release = release
        self.place = f"{document.place}: {document.title}"
        self.layers: list[Layer] = []
        self.numbers = {document.number}

    def see(self, *path: str | int) -> Any:
        """Return what is at a path."""
        return self.account.get((self.document.number, *path))

    def take(self, path: Path, keys: Sequence[str]) -> None:
        """Take keys over at a path."""
        for key in keys:
            self.account.take((self.document.number, *path, key))

    def drop(self, why: str, *path: str | int) -> None:
        """Do not take over what is at a path."""
        self.account.drop((self.document.number, *path), why)

    def refuse(self, why: str, *path: str | int) -> None:
        """Refuse what is at a path."""
        if self.see(*path):
            self.account.refuse((self.document.number, *path), why)

    def inline(self, *path: str | int) -> None:
        """Add a layer of values that stand at a path."""
        found = self.see(*path)
        if isinstance(found, Mapping) and found:
            self.layers.append(Layer(found, (self.document.number, *path)))

    def text(self, *path: str | int, number: int = -1) -> None:
        """Add a layer of the values in the text at a path, of this or another document."""
        first = self.document.number if number < 0 else number
        there: Path = (first, *path)
        place = f"{self.source.documents[first].place}: {self.account.name(there)}"
        self.layers += of_text(self.source, place, there)

    def file(self, name: str, *path: str | int, optional: bool = False) -> None:
        """Add a layer of the values in a file of the input, which is named at a path."""
        found = self.source.file(name, self.document)
        if found is not None:
            self.take(path[:-1], path[-1:])  # type: ignore[arg-type]
            self.source.used.add(found.number)
            self.layers.append(Layer(found.content, (found.number,)))
        elif optional:
            self.drop("is not in the input: what it sets is not in this overlay", *path)
        else:
            self.refuse(f"{name} is not in the input: add the file, or render the chart", *path)

    def values(self, chart: str, repository: str = "") -> Values:
        """Return all that is given."""
        self.numbers |= {int(one.path[0]) for one in self.layers}
        found = merged(self.source, f"{self.place}: values", self.layers)
        return Values(
            source=self.source,
            place=self.place,
            root=found.path,
            release=replace(self.release, numbers=frozenset(self.numbers)),
            document=self.document,
            chart=PurePosixPath(chart).name,
            repository=f"{repository}/{chart}",
        )


def mappings(given: Mapping[str, Any], key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the mappings in the list at ``key``, with their indexes."""
    found = given.get(key)
    for index, one in enumerate(found if isinstance(found, list) else []):
        if isinstance(one, Mapping):
            yield index, one


def option(namespace: str) -> str:
    """Return the option of a command for a namespace."""
    return f"--namespace {namespace} " if namespace else ""
