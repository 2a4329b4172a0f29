"""Helm values that are given in several ways, merged as Helm does."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._accounts import made_of
from deviceplugin_cli.migrate._documents import Input, documents

_STEP: Final = re.compile(r"\[(\d+)\]|((?:\\.|[^.\[\\])+)|\.")
_INTEGER: Final = re.compile("0|-?[1-9][0-9]*")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_MOST_ITEMS: Final = 1000
"""Items of a list that ``--set name[N]`` makes. Helm has a limit, too."""


@dataclass(frozen=True)
class Layer:
    """Values as they are given in one place."""

    content: Mapping[str, Any]
    path: Path


def of_text(source: Input, place: str, path: Path) -> Iterator[Layer]:
    """Yield the values in the text at ``path``, as a document of its own.

    What is not YAML is refused, as is what is not a mapping.
    """
    text = source.account.get(path)
    try:
        found = documents(place, str(text)) if text else []
    except ConfigError as error:
        source.account.refuse(path, str(error).removeprefix(f"{place}:").strip())
        return
    source.account.take(path)
    for _, content in found[:1]:
        yield Layer(content, (source.add(place, content).number,))


def of_pairs(source: Input, place: str, pairs: Sequence[tuple[str, Any, Path]]) -> Layer:
    """Return values that are given by their names, as ``--set`` does: with the path of each."""
    content: dict[str, Any] = {}
    origins: dict[Path, list[Path]] = {}
    for name, value, path in pairs:
        try:
            target = steps(name)
            assign(content, target, value)
        except ValueError as error:
            source.account.refuse(path, f"{name!r} {error}")
        else:
            origins[target] = [path]
    return Layer(content, (source.add(place, content, made_of(origins)).number,))


def merged(source: Input, place: str, layers: Sequence[Layer]) -> Layer:
    """Return the values of all layers. Those of later ones win, and lists are replaced."""
    if len(layers) == 1:
        return layers[0]
    content: dict[str, Any] = {}
    for one in layers:
        content = _merge(content, one.content)
    roots = [one.path for one in layers]
    made = source.add(place, content, lambda path: [(*one, *path) for one in roots])
    return Layer(content, (made.number,))


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for key, value in second.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return result


def steps(name: str) -> Path:
    r"""Return the keys and indexes of a name as ``--set`` reads it: ``a.b[0].c\.d``.

    Raises:
        ValueError: It is not such a name.
    """
    found = [one for one in _STEP.finditer(name) if one[0] != "."]
    if "".join(one[0] for one in _STEP.finditer(name)) != name or not found or not found[0][2]:
        raise ValueError("is not a name as of --set")
    return tuple(int(one[1]) if one[1] else re.sub(r"\\(.)", r"\1", one[2]) for one in found)


def typed(text: str) -> Any:
    """Return a value as ``--set`` reads it."""
    if text[:1] == "{" and text[-1:] == "}":
        return [typed(one.strip()) for one in text[1:-1].split(",") if one.strip()]
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return int(text) if _INTEGER.fullmatch(text) else text


def assign(content: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at a path, and make what is above it.

    Raises:
        ValueError: Something above it is neither a mapping nor a list.
    """
    found: Any = content
    for step, following in zip(path, (*path[1:], None), strict=True):
        _make_room(found, step)
        if following is None:
            found[step] = value
        else:
            if found[step] is None:
                found[step] = [] if isinstance(following, int) else {}
            found = found[step]


def _make_room(found: Any, step: str | int) -> None:
    if isinstance(found, dict) and isinstance(step, str):
        found.setdefault(step, None)
    elif isinstance(found, list) and isinstance(step, int) and step < _MOST_ITEMS:
        found += [None] * (step + 1 - len(found))
    else:
        raise ValueError("is below something that is no mapping or list")
