"""The plugins that an object can name: their settings, and which of them the manifest sets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.hosting import MOUNTED, Hosted

CUSTOM: Final = "custom"
"""The name for a plugin that is not in this repository."""

_DOWNWARD: Final = "the manifest takes it from the pod's node"
_DRA: Final = "the operator deploys device plugins only, no DRA drivers"
_OF_HTTPS: Final = "the component https sets it, with the Secret that belongs to it"
OWNED: Final[Mapping[str, str]] = {
    "plugin-dir": MOUNTED,
    "registry-dir": MOUNTED,
    "pod-resources-socket": MOUNTED,
    "registration": "the component watcher sets it, with the mounts that belong to it",
    "protocol": _DRA,
    "driver-name": _DRA,
    "node-name": _DOWNWARD,
    "cdi-dir": MOUNTED,
    "driver-dir": _DRA,
    "on-unhealthy": _DRA,
    "api-server": "it is that of the cluster",
    "http-address": "the manifest's probes ask there",
    "http-token-file": _OF_HTTPS,
    "http-cert-file": _OF_HTTPS,
    "http-key-file": _OF_HTTPS,
    "reload": "the file of a revision never changes",
}
"""Settings of every plugin that an object cannot set, and why."""


@dataclass(frozen=True)
class Named:
    """A plugin that an object can name."""

    settings: type[dp.Settings]
    offered: Callable[[Any], Iterable[str]]
    """Returns the resources that settings lead to."""
    kept: Mapping[str, str]
    """The settings that an object cannot set, and why."""
    renamed: Mapping[str, str]
    """Settings that have another key in the file."""


def _named() -> Iterator[tuple[str, Named]]:
    for entry in sorted(entry_points(group="deviceplugin.plugins"), key=lambda entry: entry.name):
        plugin: Hosted[Any] = entry.load()()
        if plugin.resources:
            kept = {**OWNED, **plugin.owned}
            yield entry.name, Named(plugin.settings, plugin.resources, kept, plugin.renamed)


PLUGINS: Final[Mapping[str, Named]] = dict(_named())
"""By ``spec.plugin``, which is also the name of the folder in ``deployments/``."""
