"""A mapping in a TOML, JSON or YAML file, with each key in it once."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deviceplugin.errors import ConfigError

_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What the three parsers are known to raise about files that are wrong in unusual ways."""
_JSON: Final = re.compile(r'(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?|[{}]')
"""What tells the keys of valid JSON."""

_MERGE: Final = "tag:yaml.org,2002:merge"
"""The kind of ``<<`` in YAML."""


def read_file(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a TOML, JSON or YAML file; YAML needs PyYAML installed.

    Raises:
        ConfigError: The file cannot be read, is something else, or gives a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = _parse(path, text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())  # YAML's has many lines
        raise ConfigError(f"{path}: not valid: {reason}") from error
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: must have keys and values, as in 'log-level: debug'")
    return value


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(text)  # refuses a repeated key by itself
    if path.suffix == ".json":
        value = json.loads(text)
        _refuse(path, _repeated_in_json(text))
        return value
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(
            f"{path}: reading YAML needs PyYAML: pip install 'deviceplugin[yaml]', or write the "
            "file as .toml or .json"
        ) from error
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return {}
        _refuse(path, _repeated_in_yaml(root))
        return loader.construct_document(root) or {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _refuse(path: Path, repeated: Iterable[tuple[int, str]]) -> None:
    if found := sorted(repeated):
        raise ConfigError(
            "\n".join(f"{path}: line {line}: key {key!r} is given twice" for line, key in found)
        )


def _repeated_in_json(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each key that its object has already; ``text`` is valid."""
    objects: list[set[str]] = []
    for found in _JSON.finditer(text):
        if found[0] == "{":
            objects.append(set())
        elif found[0] == "}":
            objects.pop()
        elif found["colon"]:
            key = json.loads(found["text"])
            if key in objects[-1]:
                yield text.count("\n", 0, found.start()) + 1, key
            objects[-1].add(key)


def _repeated_in_yaml(root: Any) -> Iterator[tuple[int, str]]:
    """Yield line and name of each key that its mapping has already; ``<<`` may bring it as well."""
    waiting, known = [root], set()
    while waiting:
        node = waiting.pop()
        if node.id == "scalar" or id(node) in known:  # an alias is the same node again
            continue
        known.add(id(node))
        if node.id == "sequence":
            waiting += node.value
            continue
        seen = set()
        for key, value in node.value:
            waiting += (key, value)
            if key.id == "scalar" and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add((key.tag, key.value))
