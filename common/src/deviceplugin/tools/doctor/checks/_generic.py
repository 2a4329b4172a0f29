"""The generic plugin's configuration: whether it can be read, and whether anything matches it."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from deviceplugin._config.files import read_file
from deviceplugin.errors import ConfigError
from deviceplugin.tools.doctor._finding import Check, Finding, failure, ok, unknown, warning
from deviceplugin.tools.doctor._node import Node

_USUAL: Final = "etc/generic-device-plugin/config.yaml"
_NONE: Final = "the generic plugin advertises nothing."


def _look(node: Node) -> Iterator[Finding]:
    path = node.config or node.at(_USUAL)
    if not path.exists():
        yield _absent(node, path)
        return
    if path.suffix not in {".json", ".toml"} and find_spec("yaml") is None:
        yield unknown(path, "is YAML, and PyYAML is not installed", "pip install pyyaml.")
        return
    try:
        document = read_file(path)
    except ConfigError as error:
        yield failure(
            path,
            str(error).removeprefix(f"{path}: "),
            means="the generic plugin exits with status 2, and its pod restarts for ever.",
            do=f"generic-device-plugin check {path} tells all that is wrong, with lines.",
        )
        return
    yield from _devices(node, path, document)


def _absent(node: Node, path: Path) -> Finding:
    if node.config or "generic" in node.plugins:
        return failure(
            path,
            "does not exist",
            means=_NONE,
            do="mount the ConfigMap there, or name the file with --config.",
        )
    return ok(path, "does not exist; needed by the generic plugin only")


def _devices(node: Node, path: Path, document: Mapping[str, Any]) -> Iterator[Finding]:
    devices = document.get("devices") or document.get("device")
    entries = [entry for entry in _items(devices) if isinstance(entry, Mapping)]
    if not entries:
        yield failure(
            path, "has no devices", means=_NONE, do="add entries to the list called devices."
        )
        return
    for entry in entries:
        yield _entry(node, path, entry)


def _entry(node: Node, path: Path, entry: Mapping[str, Any]) -> Finding:
    patterns = sorted(set(_patterns(entry)))
    bare = [pattern for pattern in patterns if not _matches(node, pattern)]
    looked_at = f"{path}: {entry.get('name', '(without name)')}"
    if patterns and bare == patterns:
        return warning(
            looked_at,
            f"nothing matches {', '.join(patterns)}",
            means="the resource has no device, unless its other selectors find some.",
            do="plug it in, load its driver, or correct the path; in a pod, mount /dev.",
        )
    return ok(looked_at, f"{len(patterns) - len(bare)} of {len(patterns)} paths match")


def _patterns(entry: Mapping[str, Any]) -> Iterator[str]:
    for group in _items(entry.get("groups")):
        for item in _items(group.get("paths") if isinstance(group, Mapping) else None):
            pattern = item.get("path") if isinstance(item, Mapping) else None
            if isinstance(pattern, str) and pattern.strip("/") and not item.get("optional"):
                yield pattern


def _matches(node: Node, pattern: str) -> bool:
    try:
        return node.exists(pattern.replace("[^", "[!"))
    except (ValueError, NotImplementedError):  # not one that Python has
        return False


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


CHECK: Final = Check("generic", "the generic plugin's configuration, and what matches it", _look)
