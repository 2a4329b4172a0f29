"""PyYAML's safe loader, with limits on what a short text can ask for. Imports PyYAML."""

from typing import Any, Final

import yaml

from deviceplugin._config.documents.nodes import MAX_NODES, TooManyError

MERGE: Final = "tag:yaml.org,2002:merge"
"""The kind of ``<<``."""
MOST_MERGED: Final = 10_000
"""Keys of a document that ``<<`` merges."""


class Loader(yaml.SafeLoader):
    """Loads documents of at most ``most`` keys and values in all, before aliases repeat them.

    Raises:
        MalformedError: There are more, or ``<<`` merges more than `MOST_MERGED` keys.
    """

    def __init__(self, text: str, most: int = MAX_NODES) -> None:
        super().__init__(text)
        self._most = most
        self._composed = self._merged = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; PyYAML calls this for each."""
        self._composed += 1
        if self._composed > self._most:
            raise TooManyError(self.line + 1, self._most)
        return super().compose_node(parent, index)

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
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        node.value = [*merged.values(), *node.value]


def _bases(value: Any) -> list[Any]:
    """Return the mappings of a ``<<``. Of one key in several, the last counts here."""
    found = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
    for one in found:
        if not isinstance(one, yaml.MappingNode):
            problem = f"expected a mapping or list of mappings for merging, but found {one.id}"
            raise yaml.constructor.ConstructorError(None, None, problem, one.start_mark)
    return found


def _identity(key: Any) -> object:
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)
