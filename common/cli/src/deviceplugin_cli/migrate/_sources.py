"""The files of the input: those that are named, and all that are in a folder."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin_cli.migrate._documents import STANDARD_INPUT, documents, read_text

_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})
_MOST_FILES: Final = 1000
"""Files of a folder. A repository of a whole cluster has some hundreds."""


@dataclass
class Sources:
    """The documents of all files, and what was skipped."""

    documents: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Places, for messages, and contents."""
    lenient: set[str] = field(default_factory=set)
    """The places of documents in folders."""
    skipped: list[str] = field(default_factory=list)
    """Files of folders that have no Kubernetes objects, and why: a line each."""


def read_sources(paths: Sequence[str]) -> Sources:
    """Return what is in files, in folders and below them, or in standard input for ``-``.

    Raises:
        ConfigError: A file cannot be read, or a named one is invalid; a folder has no documents,
            or too many files.
    """
    found = Sources()
    for path in paths:
        if path != STANDARD_INPUT and Path(path).is_dir():
            _read_folder(path, found)
        else:
            found.documents += documents(path, read_text(path))
    return found


def _read_folder(folder: str, found: Sources) -> None:
    before = len(found.documents)
    for count, path in enumerate(_files(folder)):
        if count == _MOST_FILES:
            raise ConfigError(f"{folder}: has more than {_MOST_FILES} files: name some of them")
        try:
            read = documents(path, read_text(path))
        except ConfigError as error:
            found.skipped.append(f"{str(error).splitlines()[0]}: skipped")
            continue
        found.documents += read
        found.lenient.update(place for place, _ in read)
    if len(found.documents) == before:
        endings = ", ".join(f"*{one}" for one in sorted(_ENDINGS))
        raise ConfigError("\n".join([*found.skipped, f"{folder}: has no documents in {endings}"]))


def _files(folder: str) -> Iterator[str]:
    """Yield the files of a folder in order; nothing that is hidden, and no links to folders."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            if Path(name).suffix.lower() in _ENDINGS and not name.startswith("."):
                yield str(Path(place, name))
