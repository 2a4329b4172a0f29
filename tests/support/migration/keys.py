"""Inputs that are made from lists of keys, and what has become of every key of an input."""

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from deviceplugin.kit.migration import Account, Path
from deviceplugin_cli.migrate._accounting import settle
from deviceplugin_cli.migrate._cli import collect
from deviceplugin_cli.migrate._compare import Made
from deviceplugin_cli.migrate._documents import Input
from deviceplugin_cli.migrate._fields import FIELDS

UNKNOWN = "frobnicate"
"""A key that no schema has."""
_WORDS = st.sampled_from(["a", "true", "10m", "RollingUpdate", "/dev", "$(A)", "", "é\n"])
_SIMPLE: Mapping[str, st.SearchStrategy[Any]] = {
    "": _WORDS,
    "#": st.integers(-1, 9999),
    "?": st.booleans(),
    "~": st.one_of(st.integers(0, 5), st.sampled_from(["10%", "20Mi", "1"])),
    "*": st.dictionaries(_WORDS, _WORDS, max_size=2),
}


def of_mark(mark: str) -> st.SearchStrategy[Any]:
    """Return values of a type of the API server's schema, by its mark."""
    if mark.startswith("[]"):
        return st.lists(of_mark(mark[2:]), max_size=2)
    if mark.startswith("{}"):
        return st.dictionaries(st.sampled_from(["app", "a.example/b"]), of_mark(mark[2:]))
    return of_type(mark[1:]) if mark.startswith(":") else _SIMPLE[mark]


def of_type(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return mappings with some fields of a type, and perhaps one that it does not have."""
    return st.deferred(
        lambda: with_some({key: of_mark(mark) for key, mark in FIELDS[name].items()})
    )


def with_some(keys: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return mappings with a few of these keys, and perhaps with one that nobody knows."""
    chosen = st.lists(st.sampled_from(sorted(keys)), max_size=4, unique=True)
    some = chosen.flatmap(lambda names: st.fixed_dictionaries({key: keys[key] for key in names}))
    odd = st.sampled_from([{}, {}, {}, {UNKNOWN: 1}])
    return st.builds(lambda first, second: first | second, some, odd)


def leaves(value: Any, path: Path) -> Iterator[Path]:
    """Yield the paths of all values that are neither mappings nor lists, and not null."""
    if isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in pairs:
            yield from leaves(one, (*path, key))
    elif value is not None:
        yield path


def fates(account: Account, contents: list[Any]) -> dict[Path, str]:
    """Return what became of each leaf: ``taken``, ``listed`` or ``left``."""
    left, listed = set(account.left_paths()), {path for path, _ in account.dropped()}
    found = {}
    for number, content in enumerate(contents):
        for path in leaves(content, (number,)):
            above = {path[:end] for end in range(len(path) + 1)}
            found[path] = "left" if above & left else "listed" if above & listed else "taken"
    return found


def migrated(contents: list[Any]) -> tuple[Input, list[Made]]:
    """Return an input and all that becomes of it, whatever is not understood; ``ConfigError``."""
    source = Input([(f"document {number}", one) for number, one in enumerate(contents)])
    made = collect("input", source, None, None)
    settle(source, made, partial=True)
    return source, made


def check_all_keys_are_accounted_for(contents: list[Any]) -> dict[Path, str]:
    """Return what became of each key; what is listed and what is left is printed, each once."""
    source, made = migrated(contents)
    account = source.account
    left, dropped = account.left_paths(), [path for path, _ in account.dropped()]
    for paths in (left, dropped):
        for path in paths:
            assert not any(path[:end] in paths for end in range(len(path))), path
    printed = "\n".join(
        line for one in made for line in (*one.migration.differences, *one.comparison.differences)
    )
    for line in account.left():
        assert line in printed
    for path, why in account.dropped():
        assert why in printed, path
    found = fates(account, contents)
    for path, fate in found.items():
        assert fate == "left" or UNKNOWN not in path, path
    return found
