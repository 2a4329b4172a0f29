"""Places in a text of YAML: what is there, of which kind, and what is wrong with it."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import yaml

from deviceplugin_generic import words

_TAG: Final = "tag:yaml.org,2002:"
_NAMES: Final = {"str": "text", "int": "number", "float": "number", "bool": "truth"}
_DEEPEST: Final = 200


class Text:
    """A text with its faults, collected as they are found."""

    def __init__(self, text: str, source: str = "") -> None:
        self._text = text
        self._loader: Any = None
        self._source = source
        self.faults: list[str] = []

    def root(self) -> "Cursor | None":
        """Return the place of the outermost value; None if there is none, or it is not valid."""
        try:
            node = self.compose(self._text)
            if node is not None and _is_too_deep(node, _DEEPEST):
                self.faults.append(self._line(0) + "nested too deeply")
                return None
        except RecursionError:
            self.faults.append(self._line(0) + "nested too deeply")
            return None
        except (yaml.YAMLError, ValueError) as error:
            mark = getattr(error, "problem_mark", None)
            what = getattr(error, "problem", None) or " ".join(str(error).split())
            line = mark.line if mark else _line_in(what)
            self.faults.append(self._line(line) + f"not valid: {words.bounded(what)}")
            return None
        return None if node is None else Cursor(self, node, "")

    def compose(self, text: str) -> Any:
        """Return the outermost node, or None if there is none.

        Raises:
            YAMLError: The text is not valid.
            ValueError: The same.
            RecursionError: It is nested too deeply.
        """
        self._loader = yaml.SafeLoader(text)
        return self._loader.get_single_node()

    def fault(self, node: Any, key: str, problem: str) -> None:
        """Note what is wrong at a place. What is very long, such as a value, is cut."""
        text = f"{self.place(node, key)}: {words.bounded(problem)}"
        if text not in self.faults:
            self.faults.append(text)

    def place(self, node: Any, key: str) -> str:
        """Return file, line and key of a node."""
        line = self._line(node.start_mark.line)
        return f"{line}{words.bounded(key)}" if key else line.removesuffix(": ")

    def _line(self, number: int) -> str:
        return f"{self._source}:{number + 1}: " if self._source else f"line {number + 1}: "

    def flatten(self, node: Any) -> None:
        """Put what ``<<`` refers to in its place."""
        self._loader.flatten_mapping(node)

    def construct(self, node: Any) -> Any:
        """Return what ``node`` means to YAML."""
        return self._loader.construct_object(node, deep=True)


class Cursor:
    """A value in a text. A method for each kind; one of another kind is a fault, and None."""

    def __init__(self, text: Text, node: Any, key: str) -> None:
        self._text = text
        self._node = node
        self._key = key

    def fault(self, problem: str) -> None:
        """Note what is wrong with this value."""
        self._text.fault(self._node, self._key, problem)

    @property
    def place(self) -> str:
        """File, line and key of this value."""
        return self._text.place(self._node, self._key)

    @property
    def kind(self) -> str:
        """``list``, ``mapping``, ``null``, ``str``, ``int``, ``bool`` and so on."""
        if isinstance(self._node, yaml.SequenceNode):
            return "list"
        if isinstance(self._node, yaml.MappingNode):
            return "mapping"
        return str(self._node.tag).removeprefix(_TAG)

    @property
    def raw(self) -> str:
        """A scalar as it is written, without quotes."""
        return str(self._node.value)

    def mapping(self, known: Collection[str] | None = None) -> dict[str, "Cursor"]:
        """Return the values of a mapping; keys other than the ``known`` ones are faults."""
        if self.kind != "mapping":
            self._wrong("a mapping with keys")
            return {}
        own = Counter(
            name.value
            for name, _ in self._node.value
            if isinstance(name, yaml.ScalarNode) and name.tag != f"{_TAG}merge"
        )
        try:
            self._text.flatten(self._node)
        except (yaml.YAMLError, RecursionError):
            self.fault("what << refers to is no mapping")
            return {}
        found: dict[str, Cursor] = {}
        for key, cursor in self._pairs():
            if known is not None and key not in known:
                near = get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                cursor.fault(f"unknown key: {hint}")
            else:
                found[key] = cursor  # after what << brings
        for key in found.keys() & {key for key, count in own.items() if count > 1}:
            found[key].fault("given twice")
        return found

    def _pairs(self) -> Iterator[tuple[str, "Cursor"]]:
        for name, value in self._node.value:
            if not isinstance(name, yaml.ScalarNode):
                self.fault("a key must be a text")
                continue
            shown = name.value if name.value.isprintable() else repr(name.value)
            key = f"{self._key}.{shown}" if self._key else shown
            yield name.value, Cursor(self._text, value, key)

    def items(self) -> list["Cursor"]:
        """Return the values of a list."""
        if self.kind != "list":
            self._wrong("a list")
            return []
        return [
            Cursor(self._text, node, f"{self._key}[{index}]")
            for index, node in enumerate(self._node.value)
        ]

    def text(self) -> str | None:
        """Return a text. A number or truth is a fault: without quotes it may not be what is meant.

        What YAML takes for a date is a text.
        """
        if self.kind in {"str", "timestamp"}:
            return self.raw
        self._wrong("a text (in quotes)" if self.kind in _NAMES else "a text")
        return None

    def number(self, *, least: int = 0, most: int) -> int | None:
        """Return a whole number."""
        try:
            value = int(self.raw) if self.kind == "int" and self.raw.isdecimal() else None
        except ValueError:  # of more digits than Python takes
            value = None
        if value is None or not least <= value <= most:
            self._wrong(f"a whole number from {least} to {most}")
            return None
        return value

    def truth(self) -> bool:
        """Return a truth; false where it is none."""
        if self.kind != "bool":
            self._wrong("true or false")
            return False
        return self.raw.lower() in {"true", "yes", "on"}

    def choice(self, *choices: str) -> str:
        """Return one of ``choices``, or an empty text."""
        value = self.text()
        if value is None or value in choices:
            return value or ""
        near = get_close_matches(value, choices, 1, 0.4)
        hint = f": did you mean {near[0]!r}?" if near else ""
        self.fault(f"{value!r} is none of {', '.join(choices)}{hint}")
        return ""

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(text for item in self.items() if (text := item.text()) is not None)

    def anything(self) -> Any:
        """Return whatever it is, as YAML has it; None where that cannot be."""
        try:
            return self._text.construct(self._node)
        except (yaml.YAMLError, ValueError, RecursionError):
            self.fault("not valid")
            return None

    def _wrong(self, wanted: str) -> None:
        shown = repr(self.raw) if isinstance(self._node, yaml.ScalarNode) else f"a {self.kind}"
        self.fault(f"{'nothing' if self.kind == 'null' else shown} is not {wanted}")


def _line_in(problem: str) -> int:
    """Return the line, from 0, that the message of a TOML error ends with."""
    found = re.search(r"\(at line ([0-9]+), column [0-9]+\)", problem)
    return int(found[1]) - 1 if found else 0


def texts_of(cursors: Mapping[str, Cursor]) -> dict[str, str]:
    """Return the texts of a mapping."""
    return {key: text for key, one in cursors.items() if (text := one.text()) is not None}


def _is_too_deep(node: Any, left: int) -> bool:
    """Tell whether values are nested more than ``left`` deep, or for ever by an alias."""
    level, seen = [node], 0
    while level and left:
        left -= 1
        level = [child for parent in level for child in _children(parent)]
        seen += len(level)
        if seen > _MOST:
            return True
    return bool(level)


_MOST: Final = 500_000
"""Values in a text, those that aliases repeat included."""


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
