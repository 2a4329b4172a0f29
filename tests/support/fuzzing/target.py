"""A reader of what outsiders write."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing.samples import Sample, Seed

Read = Callable[[Sample], object]
Begin = Callable[[Path], AbstractContextManager[Read]]
"""Makes what reads, with a folder of its own."""


@dataclass(frozen=True)
class Target:
    """A reader, which may return, or raise what it documents; anything else is a fault."""

    name: str
    seeds: Sequence[Seed]
    begin: Begin
    errors: tuple[type[Exception], ...] = ()


def reads_file(read: Callable[[Path], object], name: str = "sample") -> Begin:
    """Return the beginning of a target whose ``read`` gets a file with the content."""

    @contextmanager
    def begin(folder: Path) -> Iterator[Read]:
        def run(sample: Sample) -> object:
            path = folder / f"{name}{sample.suffix}"
            path.write_bytes(sample.content)
            return read(path)

        yield run

    return begin


def reads(read: Callable[[bytes], object]) -> Begin:
    """Return the beginning of a target whose ``read`` gets the content."""

    @contextmanager
    def begin(_folder: Path) -> Iterator[Read]:
        yield lambda sample: read(sample.content)

    return begin


def reads_object(read: Callable[[Mapping[str, Any]], object]) -> Begin:
    """Return the beginning of a target whose ``read`` gets an object of JSON, and nothing else."""

    def run(content: bytes) -> None:
        if (found := as_object(content)) is not None:
            read(found)

    return reads(run)


def as_object(content: bytes) -> dict[str, Any] | None:
    """Return an object of JSON as the API server's client does; None where that would refuse it."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
