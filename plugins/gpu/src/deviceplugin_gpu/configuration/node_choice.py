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
    """Reads the facts of this node, which may change. ``labels`` is a file with its labels."""

    def __init__(self, name: str, labels: Path | None, proc: Path) -> None:
        self._name, self._file, self._proc = name, labels, proc
        self._labels: Mapping[str, str] = {}

    def facts(self) -> NodeFacts:
        """Return the present facts.

        A file of labels that vanishes must not change the configuration under running pods.
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
    return tuple(sorted(found - {""}))


@dataclass(frozen=True)
class Chosen:
    """What was chosen for this node, and why. It is computed, not configured."""

    text: str = ""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return what the file's reader found. Anything else was configured, and is refused."""
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
    match: _Match

    @classmethod
    def read(cls, place: Place, keys: Mapping[str, Place]) -> Self:
        """Return the entry at ``place``, which has ``keys``. Faults are collected."""
        before = place.faults.count
        given = {key: keys[key] for key in ENTRY_KEYS if key in keys}
        match = given["match"].take(_MATCH, _Match()) if "match" in given else _Match()
        name = given["name"].take(_TEXT, "") if "name" in given else ""
        is_told = place.faults.count > before
        if not (is_told or name or match != _Match()):
            place.fault("needs a name, or node, model or label in match")
        return cls(place.key, name, match)

    def fits(self, node: NodeFacts) -> str:
        """Return why this entry is for ``node``; empty if it is not."""
        reasons = []
        if self.match.node:
            reasons.append(("node ", _first(self.match.node, [node.name] if node.name else [])))
        if self.match.model:
            reasons.append(("model ", _first(self.match.model, node.models)))
        for key, pattern in self.match.label.items():
            values = [node.labels[key]] if key in node.labels else []
            reasons.append((f"label {key}=", _first([pattern], values)))
        is_fit = all(found is not None for _, found in reasons)
        return ", ".join(f"{fact}{found}" for fact, found in reasons) if is_fit else ""


def entry(
    entries: Sequence[NodeEntry], node: NodeFacts, *, by_label: bool = True
) -> tuple[int | None, Chosen]:
    """Return the index of the entry that is for ``node``, or None, and why.

    ``by_label`` is whether the node's label names an entry. It does not if it named the file.
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


def _first(patterns: Sequence[str], values: Sequence[str]) -> str | None:
    fitting = (one for one in values if any(fnmatchcase(one, pattern) for pattern in patterns))
    return next(fitting, None)


class Reloading:
    """Calls ``reload`` when ``facts``, by which the settings are chosen, have changed.

    Models of GPUs are unknown until the driver is loaded. The framework itself notices changes of
    the file.
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
