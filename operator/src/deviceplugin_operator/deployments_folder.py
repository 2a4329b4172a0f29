"""``deployments/`` as this package carries it: the single source of what the operator applies."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin_operator.kustomize import Manifest, has_patches_alone, render

DEPLOYMENTS: Final = Path(__file__).parent / "deployments"
"""A link in a checkout, and a copy in a wheel."""
CONTAINER: Final = "device-plugin"
"""The plugin's own, of all containers of the pod."""
_NOT_OFFERED: Final = frozenset({"verbose"})
"""Components that only set what an object sets by its settings."""
_BASE: Final = "base"
_PREFIX: Final = "DP_"
_MANIFESTS: Final = frozenset({"DP_CONFIG", "DP_HTTP_ADDRESS"})
"""Variables that are the manifest's business alone."""


@dataclass(frozen=True)
class Template:
    """What ``deployments/`` has for one plugin with some components. Read it only."""

    daemon_set: Manifest
    document: Mapping[str, Any]
    """Its settings: of its ConfigMap, and the values that components give by variables."""


@cache
def components(folder: Path = DEPLOYMENTS) -> tuple[str, ...]:
    """Return the components that an object can name: those that change the DaemonSet alone.

    The others bring objects with rights or of other operators, which are not this one's to create.
    """
    found = (path.parent for path in folder.glob("components/*/kustomization.yaml"))
    names = (one.name for one in found if one.name not in _NOT_OFFERED and has_patches_alone(one))
    return tuple(sorted(names))


def template(
    plugin: str | None,
    chosen: Iterable[str] = (),
    kept: Iterable[str] = (),
    *,
    folder: Path = DEPLOYMENTS,
) -> Template:
    """Return what there is for ``plugin``, or for any plugin if it is None.

    Variables would win over the file, so those that components set become settings of the file;
    those that are ``kept`` stay.
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
    """Take the settings out of the plugin's variables, and return them."""
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
