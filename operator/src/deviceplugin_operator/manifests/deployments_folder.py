"""Reads ``deployments/``, the only source of what the operator applies."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin_operator.manifests.kustomize import Manifest, has_patches_alone, render

DEPLOYMENTS: Final = Path(__file__).parents[1] / "deployments"
"""A link in a checkout, and a copy in a wheel."""
CONTAINER: Final = "device-plugin"
"""The name of the plugin's container in its pod."""
_OF_AGENT: Final = "node-"
"""How components begin that are for deployments/node alone."""
_NOT_OFFERED: Final = frozenset({"verbose"})
"""Components that only set what the object's settings can set."""
_BASE: Final = "base"
_PREFIX: Final = "DP_"
_MANIFESTS: Final = frozenset({"DP_CONFIG", "DP_HTTP_ADDRESS"})
"""Variables that only the manifest sets."""


@dataclass(frozen=True)
class Template:
    """What ``deployments/`` has for one plugin with some components. Do not change it."""

    daemon_set: Manifest
    document: Mapping[str, Any]
    """Its settings: those of the ConfigMap, and those that components set by variables."""


@cache
def components(folder: Path = DEPLOYMENTS) -> tuple[str, ...]:
    """Return the components that an object can name: those that change the DaemonSet alone.

    The others bring objects with rights, or objects of other operators, or are for the agent, which
    runs several plugins and which no object can name.
    """
    found = (path.parent for path in folder.glob("components/*/kustomization.yaml"))
    known = (one for one in found if not one.name.startswith(_OF_AGENT))
    names = (one.name for one in known if one.name not in _NOT_OFFERED and has_patches_alone(one))
    return tuple(sorted(names))


def template(
    plugin: str | None,
    chosen: Iterable[str] = (),
    kept: Iterable[str] = (),
    *,
    folder: Path = DEPLOYMENTS,
) -> Template:
    """Return the template of ``plugin``, or that of any plugin if it is None.

    Variables override the file. So those that components set become settings of the file, except
    those that are ``kept``.
    """
    return _template(plugin or _BASE, tuple(chosen), frozenset(kept), folder)


@cache
def _template(plugin: str, chosen: tuple[str, ...], kept: frozenset[str], folder: Path) -> Template:
    places = [folder / "components" / name for name in chosen]
    manifests = render(folder / plugin, places)
    by_kind = {one["kind"]: one for one in manifests}
    daemon_set = deepcopy(by_kind["DaemonSet"])
    document = (
        yaml.safe_load(by_kind["ConfigMap"]["data"]["config.yaml"]) if plugin != _BASE else {}
    )
    return Template(daemon_set, {**document, **_moved(daemon_set, kept)})


def _moved(daemon_set: Manifest, kept: frozenset[str]) -> dict[str, str]:
    """Remove settings from the plugin's variables, and return them."""
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    (own,) = (one for one in containers if one["name"] == CONTAINER)
    found = {}
    for entry in list(own["env"]):
        name = entry["name"]
        key = name.removeprefix(_PREFIX).lower().replace("_", "-")
        if name.startswith(_PREFIX) and "value" in entry and name not in _MANIFESTS | kept:
            found[key] = entry["value"]
            own["env"].remove(entry)
    return found
