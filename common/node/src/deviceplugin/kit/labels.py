"""Node labels, in a file that Node Feature Discovery reads from its directory ``features.d``.

A plugin has no token for the Kubernetes API, and needs none for this. The worker of Node Feature
Discovery on the same node adds the labels in the file to the node, and removes those that are no
longer in it.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin._config.names import DOMAIN, NAME
from deviceplugin.errors import DiscoveryError
from deviceplugin.kit import files

__all__ = ["Checked", "checked", "clean", "key", "publish", "update"]

_LONGEST: Final = 63
_LONGEST_PREFIX: Final = 253
_NAME: Final = re.compile(NAME)
_PREFIX: Final = re.compile(DOMAIN)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_. -]")
_ENDS: Final = "-_."
_RULE: Final = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"


class Checked(NamedTuple):
    """The result of checking labels."""

    labels: Mapping[str, str]
    """The valid labels, sorted by name."""
    problems: list[str]
    """A message for each invalid label."""


def clean(text: str, blank: str = "-") -> str:
    """Return ``text`` as a valid value of a label, or as a part of a label's name.

    Invalid characters are dropped, ``blank`` replaces a space, and the result is cut to 63
    characters. It can be empty, which is a valid value.
    """
    kept = _UNFIT.sub("", text).strip().replace(" ", blank)
    return kept[:_LONGEST].strip(_ENDS)


def key(domain: str, *parts: str) -> str:
    """Return a name such as ``example.com/gpu.product-name.X1000``, made of cleaned parts.

    The name after the slash is cut to 63 characters. Parts that are empty after cleaning are
    skipped.
    """
    name = ".".join(filter(None, (clean(part, "_") for part in parts)))
    return f"{domain}/{name[:_LONGEST].strip(_ENDS)}"


def checked(labels: Mapping[str, str]) -> Checked:
    """Return the valid labels, and why the others are invalid.

    Node Feature Discovery would drop invalid labels and mention that only in its own log. A plugin
    can report it.
    """
    problems = {name: problem for name, value in labels.items() for problem in _wrong(name, value)}
    valid = {name: value for name, value in sorted(labels.items()) if name not in problems}
    return Checked(valid, [problems[name] for name in sorted(problems)])


def publish(
    path: Path, labels: Mapping[str, str], *, stamp: str = "", wall: Callable[[], float] = time.time
) -> bool:
    """Write the valid ones of ``labels`` to ``path``; return whether the file changed.

    Without labels the file is removed, and Node Feature Discovery removes them from the node.
    Readers see the old file or the new one, never a part. An unchanged file is not written. Call
    this after each successful discovery, and not after a failed one: then the labels stay.

    Args:
        path: The file, in a directory of the host such as
            ``/etc/kubernetes/node-feature-discovery/features.d``.
        labels: Values by name. Invalid ones are skipped: see ``checked``.
        stamp: The name of a label with the time of the last change; by default there is none.
        wall: Returns seconds since the epoch.

    Raises:
        DiscoveryError: It cannot be written; the message names ``path`` and says what to do.
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


def update(path: Path | None, labels: Mapping[str, str]) -> list[str]:
    """Publish labels, and return why they, or some of them, are not written: for the log.

    Without a path, nothing is written, and nothing is wrong.
    """
    if path is None:
        return []
    try:
        publish(path, labels)
    except DiscoveryError as error:
        return [str(error)]
    return checked(labels).problems


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
