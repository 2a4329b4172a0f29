"""PyYAML's loader, with limits, and with what YAML 1.2 and programs in Go read otherwise."""

from typing import Any, Final

import yaml

from deviceplugin._config.documents.nodes import MalformedError, too_many

TAG: Final = "tag:yaml.org,2002:"
MERGE: Final = f"{TAG}merge"
"""The kind of ``<<``."""
MOST_MERGED: Final = 10_000
"""Keys of a document that ``<<`` merges."""
TAB: Final = "a tab cannot indent a key or an entry: use spaces"
_ENDS: Final = "\0\r\n\x85\u2028\u2029"
"""What ends a line."""
_CHOMPING: Final = {"+": True, "-": False}
_OTHERWISE: Final = {f"{TAG}timestamp", f"{TAG}value"}
_NUMBERS: Final = {f"{TAG}int", f"{TAG}float"}


class Loader(yaml.SafeLoader):
    """Loads documents of at most ``most`` keys and values in all, before aliases repeat them.

    A tab is white space where YAML 1.2 has it: between what stands on a line, at its end, and in
    flow collections. PyYAML takes it nowhere.
    """

    def __init__(self, text: str, most: int) -> None:
        super().__init__(text)
        self._most = most
        self._composed = self._merged = 0
        self.tabbed = -1
        """The last line, from 0, on which a tab indents something."""

    def scan_to_next_token(self) -> None:
        """Skip white space and comments."""
        super().scan_to_next_token()
        while self.peek() == "\t":
            column = self.column
            is_first = self._skip("\t ") and self.allow_simple_key and not self.flow_level
            if is_first and self.peek() not in "#" + _ENDS:
                if column <= self.indent:
                    raise MalformedError(TAB, self.line + 1)
                # A value can follow, but neither a key nor an entry.
                self.tabbed = self.line
                self.allow_simple_key = False
            super().scan_to_next_token()

    def _skip(self, characters: str) -> str:
        length = 0
        while self.peek(length) in characters:
            length += 1
        skipped: str = self.prefix(length)
        self.forward(length)
        return skipped

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> Any:
        """Return the white space within a scalar without quotes, and skip it."""
        white = self._skip("\t ")
        if self.peek() in _ENDS:
            chunks = super().scan_plain_spaces(indent, start_mark)
            if chunks and (self.flow_level or self.column >= indent):
                self._skip("\t ")
            return chunks
        return [white] if white else []

    def scan_block_scalar_indicators(self, start_mark: Any) -> tuple[bool | None, int | None]:
        """Return what the header of ``|`` or ``>`` says, and skip it."""
        try:
            found: tuple[bool | None, int | None] = super().scan_block_scalar_indicators(start_mark)
        except yaml.YAMLError:
            if self.peek() != "\t":
                raise
            header = self.buffer[start_mark.pointer + 1 : self.pointer]
            digits = header.strip("+-")
            found = _CHOMPING.get(header.replace(digits, "")), int(digits) if digits else None
            self._skip("\t ")
        return found

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        """Return the tag of a value that has none.

        1:30, 2001-01-01 and = are strings, as in YAML 1.2 and for programs in Go.
        """
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if tag in _OTHERWISE or (tag in _NUMBERS and ":" in value):
            return f"{TAG}str"
        return tag

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; PyYAML calls this for each. An anchor can be given again."""
        self._composed += 1
        if self._composed > self._most:
            raise too_many(self.line + 1, self._most)
        if not self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: Any = None) -> dict[Any, Any]:
        """Return a mapping, whose keys are as they are written."""
        self.flatten_mapping(node)
        return {key_of(key): self.construct_object(value, deep) for key, value in node.value}

    def flatten_mapping(self, node: Any) -> None:
        """Put what ``<<`` merges before the keys of ``node`` itself, each key once.

        PyYAML's own repeats a key for each mapping on the way, so that a dozen lines fill memory.
        """
        bases = [base for key, value in node.value if key.tag == MERGE for base in _bases(value)]
        node.value = [pair for pair in node.value if pair[0].tag != MERGE]
        merged: dict[Any, Any] = {}
        for base in bases:
            self.flatten_mapping(base)
            merged |= {_identity(pair[0]): pair for pair in base.value}
        self._merged += len(merged)
        if self._merged > MOST_MERGED:
            problem = f"<< merges more than {MOST_MERGED} keys"
            raise MalformedError(problem, node.start_mark.line + 1)
        node.value = [*merged.values(), *node.value]


def _bases(value: Any) -> list[Any]:
    """Return the mappings of a ``<<``. Of one key in several, the last counts here."""
    found = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
    for one in found:
        if not isinstance(one, yaml.MappingNode):
            problem = f"expected a mapping or list of mappings for merging, but found {one.id}"
            raise MalformedError(problem, one.start_mark.line + 1)
    return found


def _identity(key: Any) -> object:
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)


def key_of(node: Any) -> str:
    """Return a key as it is written; MalformedError if it is not a scalar."""
    if node.id != "scalar":
        raise MalformedError("a key must be a string", node.start_mark.line + 1)
    return str(node.value)
