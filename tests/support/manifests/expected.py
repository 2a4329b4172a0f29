"""What a plugin's manifests may have beyond those of every other: its deployment.toml.

The file is ``tests/plugins/NAME/deployment.toml``; a plugin that needs nothing more has none.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

PLUGINS = Path(__file__).parents[2] / "plugins"
WIDE = {
    "host-dev": {"/dev"},
    "host-network-facts": {"/sys"},
    "gpu-cdi": {"/usr"},
    "node-amd": {"/dev"},
    "node-intelgpu": {"/dev"},
    "node-rdma": {"/dev", "/sys"},
}
"""What components mount, read-only, that is too wide for a plugin by itself."""


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


def expected(plugin: str) -> Expected:
    """Return what the manifests of ``plugin`` may have beyond those of every other."""
    path = PLUGINS / plugin / "deployment.toml"
    given = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Expected(**{key: frozenset(values) for key, values in given.items()})


def owner(component: str) -> str | None:
    """Return the plugin that ``component`` is for, or None if it is for all."""
    for path in PLUGINS.glob("*/deployment.toml"):
        if component in expected(path.parent.name).own_components:
            return path.parent.name
    return None


def wide(plugin: str, *components: str) -> set[str]:
    """Return the wide directories that a plugin mounts with ``components`` and its own."""
    return {path for one in (*components, *expected(plugin).included) for path in WIDE.get(one, ())}
