"""The plugins that an object can name, and what their own code says of settings, as files."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import yaml

import deviceplugin as dp
from deviceplugin.kit.configuration import resource_name_problem
from deviceplugin.kit.hosting import MOUNTED, Hosted
from deviceplugin_operator.names import MAX_CONFIG

CUSTOM: Final = "custom"
"""The name for a plugin that is not in this repository."""

_DOWNWARD: Final = "the manifest takes it from the pod's node"
_PROFILES: Final = "profiles of the object are for different nodes"
_DRIVER: Final = "the rights that DRA needs name the driver of the plugin's folder"
_OF_HTTPS: Final = "the component https sets it, with the Secret that belongs to it"
OWNED: Final[Mapping[str, str]] = {
    "plugin-dir": MOUNTED,
    "registry-dir": MOUNTED,
    "pod-resources-socket": MOUNTED,
    "registration": "the component watcher sets it, with the mounts that belong to it",
    "driver-name": _DRIVER,
    "instance": "the name of the DaemonSet",
    "node-name": _DOWNWARD,
    "node-labels-file": _PROFILES,
    "node-labels-wait": _PROFILES,
    "node-label": _PROFILES,
    "node-choice": "the plugin finds it by itself",
    "cdi-dir": MOUNTED,
    "driver-dir": MOUNTED,
    "api-server": "it is that of the cluster",
    "http-address": "the manifest's probes ask there",
    "http-token-file": _OF_HTTPS,
    "http-cert-file": _OF_HTTPS,
    "http-key-file": _OF_HTTPS,
    "reload": "the file of a revision never changes",
}
"""Settings of every plugin that an object cannot set, and why."""


def _named() -> Iterator[tuple[str, Hosted[Any]]]:
    for entry in sorted(entry_points(group="deviceplugin.plugins"), key=lambda entry: entry.name):
        plugin: Hosted[Any] = entry.load()()
        if plugin.resources:
            yield entry.name, plugin


PLUGINS: Final[Mapping[str, Hosted[Any]]] = dict(_named())
"""By ``spec.plugin``, which is also the name of the folder in ``deployments/``."""


def kept(plugin: str) -> Mapping[str, str]:
    """Return the settings of ``plugin`` that an object cannot set, and why."""
    return {**OWNED, **PLUGINS[plugin].owned}


def written(document: Mapping[str, Any]) -> str:
    """Return ``document`` as YAML."""
    return str(yaml.safe_dump(dict(document), sort_keys=False)) if document else "{}\n"


def size_problem(config: str) -> str:
    """Return why ``config`` is too large for the annotation of a pod, or an empty string."""
    fits = len(config) <= MAX_CONFIG  # it is ASCII
    return "" if fits else f"has {len(config)} bytes as a file, of at most {MAX_CONFIG}"


def judged(plugin: str, config: str) -> tuple[str, ...]:
    """Return the resources that ``plugin`` offers with the file ``config``.

    Raises:
        ConfigError: What the plugin would print when it starts, or no kubelet takes a resource.
    """
    hosted = PLUGINS[plugin]
    assert hosted.resources
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(config, encoding="utf-8")
        try:
            resources = tuple(hosted.resources(hosted.settings.of_file(file)))
        except dp.ConfigError as error:
            # Users see their object, not this file.
            said = re.sub(rf"^{re.escape(str(file))}(:\d+)?: ", "", str(error), flags=re.MULTILINE)
            raise dp.ConfigError(said) from None
    for name in resources:
        if problem := resources_problem(name):
            raise dp.ConfigError(f"{name!r} {problem}")
    return resources


def resources_problem(name: str) -> str:
    """Return what is wrong with a resource, or with several with ``*``, or an empty string."""
    problem = resource_name_problem(name.replace("*", "x"))
    return problem and f"is not a resource, such as example.com/lamp: {problem}"
