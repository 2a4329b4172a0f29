"""What a plugin's manifests may have beyond those of every other: its deployment.toml.

The file is ``tests/plugins/NAME/deployment.toml``; a plugin that needs nothing more has none.
"""

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

_PLUGINS = Path(__file__).parents[2] / "plugins"
_DEPLOYMENTS = Path(__file__).parents[3] / "deployments"
_FOLDERS = {path.parent for path in _DEPLOYMENTS.glob("**/kustomization.yaml")}
PLUGINS = sorted(one.name for one in _FOLDERS if one.parent == _DEPLOYMENTS and one.name != "base")
COMPONENTS = sorted(one.name for one in _FOLDERS if one.parent.name == "components")
WIDE = {
    "host-dev": {"/dev"},
    "host-network-facts": {"/sys"},
    "gpu-cdi": {"/usr"},
    "generic-privileged": {"/dev"},
}
"""What components mount, read-only, that is too wide for a plugin by itself."""
AGENT = "node"
"""All plugins in one process: it has what they have, with a component for each."""


@dataclass(frozen=True)
class Expected:
    """The keys of the file. A key that is not one of them is an error."""

    resources: frozenset[str] = frozenset()
    """What it advertises, where no setting and no ConfigMap says so."""
    writable: frozenset[str] = frozenset()
    """Mounts that a container may write to."""
    not_mounted: frozenset[str] = frozenset()
    """Settings of paths that are not looked for in the container."""
    variables: frozenset[str] = frozenset()
    """Variables of its container besides DP_..."""
    included: frozenset[str] = frozenset()
    """Components that it has from the start."""
    own_components: frozenset[str] = frozenset()
    """Components for it alone, whose settings others do not have."""
    left_to_settings: frozenset[str] = frozenset()
    """Keys of which the operator's schema cannot say all: names, what goes together."""


@cache
def expected(plugin: str) -> Expected:
    """Return what the manifests of ``plugin`` may have beyond those of every other."""
    path = _PLUGINS / plugin / "deployment.toml"
    given = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    own = Expected(**{key: frozenset(values) for key, values in given.items()})
    if plugin != AGENT:
        return own
    others = [expected(path.parent.name) for path in _files() if path.parent.name != AGENT]
    return replace(
        own,
        writable=own.writable.union(*(one.writable for one in others)),
        variables=own.variables.union(*(one.variables for one in others)),
    )


def _files() -> list[Path]:
    return [*_PLUGINS.glob("*/deployment.toml")]


@cache
def owner(component: str) -> str | None:
    """Return the plugin that ``component`` is for, or None if it is for all."""
    for path in _files():
        name = path.parent.name
        if component == f"{AGENT}-{name}":
            return AGENT
        if component in expected(name).own_components:
            return name
    return None


def fitting(plugin: str) -> list[str]:
    """Return the components that a plugin can be given."""
    return [one for one in COMPONENTS if owner(one) in {None, plugin}]


def wide(plugin: str, *components: str) -> set[str]:
    """Return the wide directories that a plugin mounts with ``components`` and its own."""
    names = [*components, *expected(plugin).included]
    for name in names:
        text = (_DEPLOYMENTS / "components" / name / "kustomization.yaml").read_text(
            encoding="utf-8"
        )
        names += [Path(one).name for one in yaml.safe_load(text).get("components", ())]
    return {path for one in names for path in WIDE.get(one, ())}
