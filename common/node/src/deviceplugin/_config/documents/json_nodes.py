"""JSON as nodes: what ``json`` reads, with the line of each value."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from deviceplugin._config.documents.nodes import (
    MalformedError,
    Node,
    TooDeepError,
    check_size,
    of_value,
)

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
"""The tokens of a valid document."""

Token = tuple[str, int]
"""The token, and its line."""


def compose(text: str) -> Node | None:
    """Return the outermost value; None for an empty document.

    Raises:
        MalformedError: The document is not valid.
    """
    if not text.strip():
        return None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise MalformedError(error.msg, error.lineno) from error
    except ValueError as error:  # a number of more digits than Python accepts
        raise MalformedError(str(error)) from error
    except RecursionError as error:
        raise TooDeepError from error
    check_size(document)
    tokens = _tokens(text)
    root = _value(tokens)
    assert next(tokens, None) is None  # or the tokens are not json's
    return root


def _tokens(text: str) -> Iterator[Token]:
    line, end = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", end, found.start())
        end = found.start()
        yield found[0], line


def _value(tokens: Iterator[Token]) -> Node:
    return _node(*next(tokens), tokens)


def _node(word: str, line: int, tokens: Iterator[Token]) -> Node:
    if word == "{":
        node = Node("mapping", line)
        for key, at in _until("}", tokens):
            next(tokens)  # the colon
            node.add(json.loads(key), _value(tokens), at)
        return node
    if word == "[":
        items = [_node(*first, tokens) for first in _until("]", tokens)]
        return Node("list", line, items=items)
    value: Any = json.loads(word)
    node = of_value(value, line=line)
    node.raw = value if isinstance(value, str) else word
    return node


def _until(end: str, tokens: Iterator[Token]) -> Iterator[Token]:
    """Yield the first token of each value, or of each key and value, before ``end``."""
    while (token := next(tokens))[0] != end:
        if token[0] != ",":
            yield token
