"""What ``deviceplugin doctor`` checks for this plugin: its file, and what matches it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from deviceplugin import ConfigError
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin_generic import DEFAULT_CONFIG
from deviceplugin_generic.configuration import exposure, globs
from deviceplugin_generic.configuration.entries import Configuration, Entry, Rule
from deviceplugin_generic.discovery.matching import of_rule
from deviceplugin_generic.discovery.tree import Roots, Tree
from deviceplugin_generic.plugin import GenericSettings

_NONE: Final = "the generic plugin advertises nothing."
_PLUG_IN: Final = "plug it in, load its driver, or correct the path; in a pod, mount /dev."
_MAGIC: Final = re.compile(r"([*?\[\\])")


def look(node: Node) -> Iterable[Finding]:
    """The generic plugin's configuration, and what matches it."""
    path = node.config or node.at(DEFAULT_CONFIG)
    if not path.exists():
        return [_absent(node, path)]
    try:
        configuration = node.own_settings(GenericSettings, path).device.configuration
    except ConfigError as error:
        means = "the generic plugin exits with status 2, and its pod restarts for ever."
        do = f"generic-device-plugin check {path} lists all errors, with their lines."
        if node.section is not None:
            means = _NONE
            do = f"device-plugins --config {path} --print-config lists all errors."
        found = str(error).removeprefix(f"{path}: ").replace(f"{path}:", "line ")
        return [failure(path, found, means=means, do=do)]
    return _devices(node, path, configuration)


def _absent(node: Node, path: Path) -> Finding:
    if node.config or "generic" in node.plugins:
        return failure(
            path,
            "does not exist",
            means=_NONE,
            do="mount the ConfigMap there, or name the file with --config.",
        )
    return ok(path, "does not exist; only the generic plugin needs it")


def _devices(node: Node, path: Path, configuration: Configuration) -> Iterator[Finding]:
    for reason in configuration.left_out:
        means = "the generic plugin advertises nothing for this entry."
        yield warning(path, f"{reason}; skipped", means=means, do="remove the entry.")
    do = "add entries to the list devices."
    if not configuration.is_given:
        yield failure(path, "has no devices", means=_NONE, do=do)
    elif not (configuration.entries or configuration.rules or configuration.left_out):
        yield warning(path, "has no devices: its list is empty", means=_NONE, do=do)
    for entry in configuration.entries:
        yield _entry(node, path, entry)
        yield from _exposure(f"{path}: {entry.name}", list(exposure.exposed(entry)))
        if entry.health.command:
            yield ok(
                f"{path}: {entry.name}", f"runs {entry.health.command[0]} in the plugin, as root"
            )
    for rule in configuration.rules:
        yield from _rule(node, path, rule)


def _entry(node: Node, path: Path, entry: Entry) -> Finding:
    specs = [spec for group in entry.groups for spec in group.paths]
    patterns = sorted({spec.path for spec in specs if not spec.optional})
    names = globs.Names(str(node.at("/dev")))
    bare = [one for one in patterns if not globs.glob(_below(node.root, one), names)]
    looked_at = f"{path}: {entry.name}"
    if patterns and bare == patterns:
        found = f"nothing matches {', '.join(patterns)}"
        means = "the resource has no device, unless its other selectors find some."
        return warning(looked_at, found, means=means, do=_PLUG_IN)
    return ok(looked_at, f"{len(patterns) - len(bare)} of {len(patterns)} paths match")


def _rule(node: Node, path: Path, rule: Rule) -> Iterator[Finding]:
    looked_at = f"{path}: {rule.pattern}"
    found = list(of_rule(rule, Tree(Roots(dev=node.at("/dev"), sys=node.at("/sys")))))
    if found:
        yield ok(looked_at, f"{len(found)} paths below /dev match")
        nodes = {one.container_path for _, match in found for one in match.nodes}
        yield from _exposure(looked_at, sorted(filter(exposure.is_memory_or_disk, nodes)))
    else:
        means = "it makes no resource."
        yield warning(looked_at, "nothing below /dev matches", means=means, do=_PLUG_IN)


def _exposure(looked_at: str, exposed: Sequence[str]) -> Iterator[Finding]:
    if exposed:
        yield warning(
            looked_at,
            f"gives containers {', '.join(exposed)}",
            means="a pod that gets the device can be root on the node, and so can whoever may "
            "create one.",
            do="give only what the device needs, and read-only if that will do; let only "
            "administrators of the nodes edit the configuration.",
        )


def _below(root: Path, pattern: str) -> str:
    """Return a pattern of the node, whose ``/`` is at ``root``."""
    return _MAGIC.sub(r"\\\1", str(root)).rstrip("/") + pattern
