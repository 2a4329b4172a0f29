"""One configuration for different nodes: which file, and which entry of it, is for this one.

The label of NVIDIA's plugin, ``nvidia.com/device-plugin.config``, names a file of a directory, or
an entry of a file. Without it the first entry that fits the node is taken.
"""

import ast
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import (
    Place,
    list_of,
    mapping_of,
    record,
    suggestion,
    text,
)

_MODEL: Final = "Model:"

LABEL: Final = "nvidia.com/device-plugin.config"
DEFAULT: Final = "default"
ENTRY_KEYS: Final = ("name", "match")
_TEXT: Final = text(r"\S", "a string", strip=True)
_PATTERNS: Final = list_of(_TEXT, single=True)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts that a configuration can be chosen by."""

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    """Models of its GPUs, each once, in alphabetical order; none before the driver is loaded."""

    def __str__(self) -> str:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
        models = ", ".join(self.models)
        return f"node {self.name or '?'}, models: {models or 'none'}, labels: {labels or 'none'}"


class NodeReader:
    """Reads the facts of this node, which may change.

    Args:
        name: Its name; empty if unknown.
        labels: A file with its labels, if there is one.
        proc: Where procfs is.
    """

    def __init__(self, name: str, labels: Path | None, proc: Path) -> None:
        self._name, self._file, self._proc = name, labels, proc
        self._labels: Mapping[str, str] = {}

    def facts(self) -> NodeFacts:
        """Return the present facts.

        While the file of labels cannot be read, the last labels are returned, or none at the start.
        A file that vanishes must not change the configuration under running pods.
        """
        if self._file is not None:
            with suppress(OSError):
                self._labels = _labels(self._file)
        return NodeFacts(self._name, self._labels, _models(self._proc))


def _labels(path: Path) -> dict[str, str]:
    """Return the labels in a file of the downward API: lines of ``key="value"``, or without."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): _unquoted(value.strip()) for key, _, value in pairs}


def _unquoted(text: str) -> str:
    if text.startswith('"'):
        with suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(text))
    return text


def _models(proc: Path) -> tuple[str, ...]:
    found = set()
    for path in proc.glob("driver/nvidia/gpus/*/information"):
        with suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()
            found |= {line.removeprefix(_MODEL).strip() for line in lines if line[:6] == _MODEL}
    return tuple(sorted(found))


@dataclass(frozen=True)
class Chosen:
    """What was chosen for this node, and why. It is computed, not configured."""

    text: str = ""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return what the file's reader found.

        Raises:
            ConfigError: It was configured.
        """
        if isinstance(value, cls):
            return value
        raise dp.ConfigError("cannot be set: put the node's label or name into the file")

    def write(self) -> str:
        """Return it as ``--print-config`` shows it."""
        return self.text


@dataclass(frozen=True, slots=True)
class _Match:
    node: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    label: Mapping[str, str] = field(default_factory=dict)


_MATCH: Final = record(
    _Match,
    {"node": _PATTERNS, "model": _PATTERNS, "label": mapping_of(_TEXT, least=1)},
)


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """The nodes that an entry of ``nodes`` is for. ``where`` is its place in the file."""

    where: str
    name: str
    node: tuple[str, ...]
    model: tuple[str, ...]
    label: Mapping[str, str]

    @classmethod
    def read(cls, place: Place, keys: Mapping[str, Place]) -> Self:
        """Return the entry at ``place``, which has ``keys``. Faults are collected."""
        before = place.faults.count
        given = {key: keys[key] for key in ENTRY_KEYS if key in keys}
        match = given["match"].take(_MATCH, _Match()) if "match" in given else _Match()
        name = given["name"].take(_TEXT, "") if "name" in given else ""
        is_told = place.faults.count > before
        if not (is_told or name or match.node or match.model or match.label):
            place.fault("needs a name, or node, model or label in match")
        return cls(place.key, name, match.node, match.model, match.label)

    def fits(self, node: NodeFacts) -> str:
        """Return why this entry is for ``node``; empty if it is not."""
        reasons = []
        if self.node:
            reasons.append((f"node {node.name}", _first(self.node, [node.name])))
        if self.model:
            model = _first(self.model, node.models)
            reasons.append((f"model {model}", model))
        for key, pattern in self.label.items():
            value = node.labels.get(key)
            is_such = value is not None and fnmatchcase(value, pattern)
            reasons.append((f"label {key}={value}", "such" if is_such else ""))
        fitting = [reason for reason, found in reasons if found]
        return ", ".join(fitting) if len(fitting) == len(reasons) else ""


def entry(
    entries: Sequence[NodeEntry], node: NodeFacts, *, by_label: bool = True
) -> tuple[int | None, Chosen]:
    """Return the index of the entry that is for ``node``, or None, and why.

    ``by_label`` is whether the node's label names an entry. It does not if it named the file.

    Raises:
        ConfigError: The node's label names none of them.
    """
    named = {one.name: number for number, one in enumerate(entries) if one.name}
    wanted = node.labels.get(LABEL) if by_label else None
    if wanted and named:
        if wanted not in named:
            raise dp.ConfigError(f"nodes: {_unknown(wanted, [*named])} ({node})")
        number = named[wanted]
        return number, Chosen(f"{entries[number].where} ({wanted}), by label {LABEL}={wanted}")
    for number, one in enumerate(entries):
        if reason := one.fits(node):
            name = f" ({one.name})" if one.name else ""
            return number, Chosen(f"{one.where}{name}, by {reason}")
    if DEFAULT in named:
        return named[DEFAULT], Chosen(f"{entries[named[DEFAULT]].where} ({DEFAULT}): none fits")
    return None, Chosen(f"none of nodes: none fits {node}" if entries else "")


def file(path: Path, node: NodeFacts) -> tuple[Path, str]:
    """Return the file that is for ``node`` at ``path``, and why, if ``path`` is a directory.

    In a directory, such as a mounted ConfigMap, the node's label names the file. Without a label it
    is the file called default, or the only one.

    Raises:
        ConfigError: There is no such file.
    """
    if not path.is_dir():
        return path, ""
    files = sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    known = {name: one for one in files for name in (one.stem, one.name)}
    wanted = node.labels.get(LABEL)
    if wanted:
        if wanted not in known:
            raise dp.ConfigError(f"{path}: {_unknown(wanted, [one.name for one in files])}")
        return known[wanted], f"{known[wanted].name}, by label {LABEL}={wanted}"
    if DEFAULT in known:
        return known[DEFAULT], f"{known[DEFAULT].name}, without label {LABEL}"
    if len(files) == 1:
        return files[0], f"{files[0].name}, the only one"
    names = ", ".join(one.name for one in files) or "nothing"
    raise dp.ConfigError(
        f"{path}: has {names}: name the file of this node by its label {LABEL} (in "
        f"node-labels-file), or call one {DEFAULT}"
    )


def _unknown(wanted: str, known: Sequence[str]) -> str:
    return (
        f"label {LABEL} of the node names {wanted!r}, which is not there: "
        f"{suggestion(wanted, known)}"
    )


def _first(patterns: Sequence[str], values: Sequence[str]) -> str:
    fitting = (one for one in values if any(fnmatchcase(one, pattern) for pattern in patterns))
    return next(fitting, "")


class Reloading:
    """Has the settings read again when the node has changed since this object was made.

    ``facts`` returns the facts that the choice depends on, such as the models of GPUs, which are
    unknown until the driver is loaded. ``reload`` is called once for each change. The framework
    itself notices changes of the file.
    """

    def __init__(self, facts: Callable[[], object], reload: Callable[[], None]) -> None:
        self._facts = facts
        self._reload = reload
        self._seen = facts()

    def check(self) -> bool:
        """Check the node, and return whether the settings are read again."""
        seen = self._facts()
        if seen == self._seen:
            return False
        self._seen = seen
        log.info("node changed, reloading the configuration", extra={"node": str(seen)})
        self._reload()
        return True
