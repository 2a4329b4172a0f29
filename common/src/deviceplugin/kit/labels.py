"""Labels of the node, by a file that Node Feature Discovery reads from its ``features.d``.

A plugin has no token of the Kubernetes API, and needs none for this: the worker of Node Feature
Discovery on the same node labels it with what is in the file, and takes labels away that are no
longer there.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin.errors import DiscoveryError
from deviceplugin.kit import files

__all__ = ["Checked", "checked", "clean", "key", "publish"]

_LONGEST: Final = 63
_LONGEST_PREFIX: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_. -]")
_ENDS: Final = "-_."
_RULE: Final = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"


class Checked(NamedTuple):
    """Labels as Kubernetes takes them."""

    labels: Mapping[str, str]
    """Those that are valid, in the order of their names."""
    problems: list[str]
    """Why others are not, a text for each."""


def clean(text: str, blank: str = "-") -> str:
    """Return ``text`` as the value of a label may be, or as a part of its name.

    Characters that may not be in it are left out, ``blank`` stands for a space, and what is longer
    than 63 characters is cut. The result can be empty, which is a valid value.
    """
    kept = _UNFIT.sub("", text).strip().replace(" ", blank)
    return kept[:_LONGEST].strip(_ENDS)


def key(domain: str, *parts: str) -> str:
    """Return a name such as ``example.com/gpu.product-name.X1000`` of parts that are cleaned.

    Its part behind the slash is cut at 63 characters; parts of which nothing is left are left out.
    """
    name = ".".join(filter(None, (clean(part, "_") for part in parts)))
    return f"{domain}/{name[:_LONGEST].strip(_ENDS)}"


def checked(labels: Mapping[str, str]) -> Checked:
    """Return the labels that are valid, and why others are not.

    Who reads the file can tell nobody but its own log what it leaves out; a plugin can say so.
    """
    problems = {name: problem for name, value in labels.items() for problem in _wrong(name, value)}
    valid = {name: value for name, value in sorted(labels.items()) if name not in problems}
    return Checked(valid, [problems[name] for name in sorted(problems)])


def publish(
    path: Path,
    labels: Mapping[str, str],
    *,
    stamp: str = "",
    wall: Callable[[], float] = time.time,
) -> bool:
    """Have ``path`` contain the valid ones of ``labels``; return whether it did not before.

    Without labels there is no file, and Node Feature Discovery takes them from the node. The file
    is whole or as it was before, and is not touched where nothing has changed. Call this at each
    discovery that found anything out, and not after one that failed: then the labels stay.

    Args:
        path: The file, in a directory of the host such as
            ``/etc/kubernetes/node-feature-discovery/features.d``.
        labels: Values by name; see ``checked`` for those that are left out.
        stamp: The name of a label that says when the others last changed; none where not given.
        wall: Seconds since the epoch.

    Raises:
        DiscoveryError: It cannot be written; the text names ``path`` and says what to do.
    """
    lines = [f"{name}={value}\n" for name, value in checked(labels).labels.items()]
    try:
        if not lines:
            return files.remove(path)
        if not stamp:
            return files.write(path, "".join(lines))
        if _lines(path, without=stamp) == lines:
            return False
        return files.write(path, "".join([f"{stamp}={wall():.0f}\n", *lines]))
    except OSError as error:
        raise DiscoveryError(
            f"{path}: {error.strerror}: mount its directory from the host, writable"
        ) from error


def _lines(path: Path, *, without: str) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines(keepends=True) if not line.startswith(f"{without}=")]


def _wrong(name: str, value: str) -> Iterator[str]:
    prefix, slash, last = name.rpartition("/")
    if slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _LONGEST_PREFIX):
        yield f"label {name!r}: {prefix!r} is not a domain such as example.com"
    if not _NAME.fullmatch(last):
        yield f"label {name!r}: its name is not {_LONGEST} characters or fewer of {_RULE}"
    if value and not _NAME.fullmatch(value):
        yield f"label {name!r}: value {value!r} is not {_LONGEST} characters or fewer of {_RULE}"
