"""One configuration for different nodes: which file of a directory, and which entry of ``nodes``.

Both are chosen by what is known of the node before a file is read: its name, its labels, and what
a plugin knows besides. A label that the setting ``node-label`` names, names the file or the entry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.documents.faults import InvalidError, suggestion
from deviceplugin._config.documents.places import LONGEST, Place
from deviceplugin._config.documents.reading import content
from deviceplugin._config.kinds.kind import list_of, mapping_of
from deviceplugin._config.kinds.mappings import record
from deviceplugin._config.kinds.scalars import text
from deviceplugin.errors import ConfigError

NODES: Final = "nodes"
"""The key of a file that has the entries."""
_DEFAULT: Final = "default"
_MOST_SHOWN: Final = 10
"""Labels of a node that a message shows."""
_EXTENSIONS: Final = {".yaml", ".yml", ".json", ".toml"}
_TEXT: Final = text(r"\S", "a string", strip=True)
_PATTERNS: Final = list_of(_TEXT, single=True)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a configuration can be chosen by."""

    name: str = ""
    label: str = ""
    """The key of the label that names a file or an entry; empty if none does."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    others: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """What the plugin knows besides, by the key of ``match``."""

    def __str__(self) -> str:
        labels = [f"{key}={value}" for key, value in sorted(self.labels.items())]
        labels = labels if len(labels) <= _MOST_SHOWN else [f"{len(labels)} of them"]
        facts = {**self.others, "labels": labels}
        shown = [f"{name}: {', '.join(values) or 'none'}" for name, values in facts.items()]
        return ", ".join([f"node {self.name or '?'}", *shown])

    @property
    def wanted(self) -> str:
        """The name that the label gives; empty if the node does not have the label."""
        return self.labels.get(self.label, "") if self.label else ""

    def unknown(self, known: Sequence[str]) -> str:
        """Return the message for a label that names none of ``known``."""
        advice = suggestion(self.wanted, known)
        return f"label {self.label} of the node names {self.wanted!r}, which is not there: {advice}"


class NodeLabels:
    """The labels of this node in a file of the downward API, or of ``deviceplugin node-labels``."""

    def __init__(self) -> None:
        self._last: Mapping[str, str] | None = None

    def read(self, path: Path | None) -> Mapping[str, str]:
        """Return the labels; none while there is no file.

        While the file cannot be read, they are those of the last time: a file that vanishes must
        not change the configuration under running pods. ConfigError if there was no last time.
        """
        try:
            if path is not None:
                lines = content(path, LONGEST).decode(errors="replace").splitlines()
                pairs = (line.partition("=") for line in lines if "=" in line)
                self._last = {key.strip(): _unquoted(value.strip()) for key, _, value in pairs}
        except FileNotFoundError:  # it may come
            pass
        except (OSError, ValueError) as error:
            if self._last is None:
                problem = getattr(error, "strerror", None) or error
                raise ConfigError(f"node-labels-file: {path}: {problem}") from error
        return self._last or {}


def _unquoted(text: str) -> str:
    if text.startswith('"'):
        import ast  # for the downward API's quotes only

        with suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(text))
    return text


def file(path: Path, node: NodeFacts) -> tuple[Path, str]:
    """Return the file that is for ``node`` at ``path``, and why, if ``path`` is a directory.

    In a directory, such as a mounted ConfigMap, the node's label names the file, with or without
    its extension. Without a label it is the file called as the node, or default, or the only one.

    Raises:
        ConfigError: The label names no file, or without a label there are several.
    """
    try:
        if not path.is_dir():
            return path, ""
        files = sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    known = {one.stem: one for one in files if one.suffix in _EXTENSIONS}
    known |= {one.name: one for one in files}
    names = [one.name for one in files]
    if node.wanted:
        if node.wanted not in known:
            raise ConfigError(f"{path}: {node.unknown(names)}")
        found = known[node.wanted]
        return found, f"{found.name}, by label {node.label}={node.wanted}"
    if node.name in known:
        return known[node.name], f"{known[node.name].name}, by node {node.name}"
    if _DEFAULT in known:
        why = f"without label {node.label}" if node.label else "no other is for this node"
        return known[_DEFAULT], f"{known[_DEFAULT].name}, {why}"
    if len(files) == 1:
        return files[0], f"{files[0].name}, the only one"
    label, name = node.label or "that node-label names", node.name or "as node-name says"
    raise ConfigError(
        f"{path}: has {', '.join(names) or 'nothing'}: call one {name}, as this node, or "
        f"{_DEFAULT}, or name one by the label {label} (in node-labels-file)"
    )


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """An entry of ``nodes``: for which nodes it is, and the rest of it."""

    place: Place
    """Without its name and without what nodes it is for."""
    name: str
    match: Mapping[str, Any]

    def fits(self, node: NodeFacts) -> str:
        """Return why this entry is for ``node``; empty if it is not."""
        facts = {"node": [node.name] if node.name else [], **node.others}
        reasons = [
            (f"{key} ", _first(self.match[key], values))
            for key, values in facts.items()
            if key in self.match
        ]
        for key, pattern in self.match.get("label", {}).items():
            values = [node.labels[key]] if key in node.labels else []
            reasons.append((f"label {key}=", _first([pattern], values)))
        is_fit = all(found is not None for _, found in reasons)
        return ", ".join(f"{fact}{found}" for fact, found in reasons) if is_fit else ""


def of_node(
    root: Place, node: NodeFacts, read: Callable[[Place], Mapping[str, object]]
) -> tuple[Mapping[str, object], str]:
    """Return what ``read`` returns for a document, with the entry that is for ``node``, and why.

    All entries are read, so that their faults are found on every node.
    """
    found: list[NodeEntry] = []
    choice: tuple[int | None, str] = None, ""
    if root.kind == "mapping" and NODES in root.node.pairs:
        with suppress(InvalidError):
            found = [*_entries(root.within(NODES), node)]
        root = root.without(NODES)
    parts = [read(root), *(read(one.place) for one in found)]
    try:
        choice = _entry(found, node)
    except ConfigError as error:
        root.fault(str(error))
    number, why = choice
    return {**parts[0], **(parts[number + 1] if number is not None else {})}, why


def _entries(nodes: Place, node: NodeFacts) -> Iterator[NodeEntry]:
    """Yield the valid entries of ``nodes``. Faults are collected."""
    facts = dict.fromkeys(("node", *node.others), _PATTERNS)
    match = record(dict[str, Any], {**facts, "label": mapping_of(_TEXT, least=1)})
    for place in [] if nodes.kind == "nothing" else nodes.items():
        with suppress(InvalidError):
            keys, before = place.keys(), place.faults.count
            found = keys["match"].take(match, {}) if "match" in keys else {}
            name = keys["name"].take(_TEXT, "") if "name" in keys else ""
            if not (found or name) and place.faults.count == before:
                known = ", ".join((*facts, "label"))
                place.fault(f"needs a name, or a match with some of {known}")
            yield NodeEntry(place.without("name", "match"), name, found)


def _entry(found: Sequence[NodeEntry], node: NodeFacts) -> tuple[int | None, str]:
    """Return the index of the entry that is for ``node``, or None, and why.

    Raises:
        ConfigError: The node's label names none of the entries that have a name.
    """
    named = {one.name: number for number, one in enumerate(found) if one.name}
    if node.wanted and named:
        if node.wanted not in named:
            raise ConfigError(f"{NODES}: {node.unknown([*named])} ({node})")
        number = named[node.wanted]
        by = f"by label {node.label}={node.wanted}"
        return number, f"{found[number].place.key} ({node.wanted}), {by}"
    for number, one in enumerate(found):
        if reason := one.fits(node):
            name = f" ({one.name})" if one.name else ""
            return number, f"{one.place.key}{name}, by {reason}"
    if _DEFAULT in named:
        return named[_DEFAULT], f"{found[named[_DEFAULT]].place.key} ({_DEFAULT}): none fits"
    return None, f"none of {NODES}: none fits {node}" if found else ""


def _first(patterns: Sequence[str], values: Sequence[str]) -> str | None:
    fitting = (one for one in values if any(fnmatchcase(one, pattern) for pattern in patterns))
    return next(fitting, None)
