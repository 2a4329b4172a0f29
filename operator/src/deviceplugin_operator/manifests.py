"""What ``deployments/`` has for each plugin: data of ``manifests.json``, beside this module.

``build/operator_manifests.py`` makes the file, from the kustomizations: of each plugin its
DaemonSet and its settings, and of each component the strategic merge patch of the DaemonSet. What
the component ``dra`` makes is there once, with the names of one plugin, for which those of others
are put in.
"""

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

Manifest = dict[str, Any]

FILE: Final = Path(__file__).with_name("manifests.json")
CONTAINER: Final = "device-plugin"
"""The name of the plugin's container in its pod."""
BASE: Final = "base"
"""What the file calls the manifest of no plugin by itself."""
KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}
"""Lists of which Kubernetes merges entries that have the same key."""
_APP: Final = "app.kubernetes.io/name"
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
def _known() -> dict[str, Manifest]:
    found: dict[str, Manifest] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def components() -> tuple[str, ...]:
    """Return the components that an object can name: they bring no objects or rights."""
    return tuple(_known()[BASE]["components"])


@cache
def template(
    plugin: str | None,
    chosen: tuple[str, ...] = (),
    kept: frozenset[str] = frozenset(),
    account: str = "",
) -> Template:
    """Return the template of ``plugin``, or that of any plugin if it is None.

    With the ``account`` that DRA needs, it has all that the component ``dra`` adds.

    Variables override the file. So those that components set become settings of the file, except
    those that are ``kept``.
    """
    given = _known()[plugin or BASE]
    daemon_set = deepcopy(given["daemonSet"])
    if account:
        merge(daemon_set, json.loads(_of_dra("patch", account)))
        daemon_set["spec"]["template"]["metadata"]["labels"][_APP] = account
    for name in chosen:
        merge(daemon_set, given["components"][name])
    return Template(daemon_set, {**given["settings"], **_moved(daemon_set, kept)})


def driver(plugin: str) -> str:
    """Return the name of the DRA driver of ``plugin``."""
    return str(_known()[plugin]["driver"])


def classes(plugin: str) -> dict[str, Manifest]:
    """Return the DeviceClasses that ``deployments/`` has for ``plugin``, by resource."""
    found = deepcopy(_known().get(plugin, {}).get("classes", []))
    return {one["spec"]["extendedResourceName"]: one for one in found}


def rights(account: str, driver: str, namespace: str) -> list[Manifest]:
    """Return the account of a driver in ``namespace``, and all that it needs for DRA.

    What is in no namespace has this one in its name: that of ``kubectl apply -k`` is another.
    """
    found: list[Manifest] = json.loads(_of_dra("rights", account, driver, namespace))
    for one in found:
        if one["kind"] == "NetworkPolicy":
            one["metadata"]["name"] = f"{account}-dra"
            one["spec"]["podSelector"]["matchLabels"][_APP] = account
        if one["kind"] in {"NetworkPolicy", "ServiceAccount"}:
            one["metadata"]["namespace"] = namespace
        for subject in one.get("subjects", ()):
            subject["namespace"] = namespace
    return found


def _of_dra(what: str, account: str, driver: str = "", namespace: str = "") -> str:
    given = _known()["dra"]
    text, own = json.dumps(given[what]), given["account"]
    for name in (":dra", ".dra", ".claim-status"):
        text = text.replace(f"{own}{name}", f"{account}{name}{name[0]}{namespace}")
    return text.replace(own, account).replace(given["driver"], driver)


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


def merge(place: Manifest, patch: Mapping[str, Any]) -> None:
    """Merge a patch strategically, in place: None removes, and so does ``$patch: delete``.

    Entries of the lists of ``KEYS`` are one if they have the same key; other lists are replaced.
    """
    for name, value in patch.items():
        if value is None:
            place.pop(name, None)
        elif isinstance(value, dict):
            merge(place.setdefault(name, {}), value)
        elif name in KEYS:
            place[name] = _merged(place.get(name, ()), KEYS[name], value)
        else:
            place[name] = deepcopy(value)


def _merged(entries: Iterable[Manifest], key: str, patches: Iterable[Manifest]) -> list[Manifest]:
    found = {one[key]: one for one in entries}
    for patch in patches:
        if patch.get("$patch") == "delete":
            found.pop(patch[key], None)
        else:
            merge(found.setdefault(patch[key], {}), patch)
    return [*found.values()]
