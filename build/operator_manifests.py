"""Write the manifests that the operator applies into its package, as data.

    operator_manifests.py [FILE]

The operator is built and installed with the file, which is not committed. It is written only if it
would be another one, so that any number of processes can call this.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deviceplugin_operator.manifests import BASE, FILE, Manifest
from deviceplugin_operator.names import DRIVER
from kustomize import DEPLOYMENTS, difference, documents, has_patches_alone, identity, render

OF_AGENT = "node-"
"""How components begin that are for deployments/node alone."""
DRA = DEPLOYMENTS / "components/dra"
DRA_OF = "gopher"
"""The plugin whose names are in what the component dra makes; the operator puts in others."""
NOT_OFFERED = frozenset({"surge", "verbose"})
"""Components that only set what the object's settings can set."""


def components() -> Iterator[Path]:
    """Yield the components that change the DaemonSet of a plugin, and nothing else."""
    for path in sorted(path.parent for path in DEPLOYMENTS.glob("components/*/kustomization.yaml")):
        is_offered = path.name not in NOT_OFFERED and not path.name.startswith(OF_AGENT)
        if is_offered and has_patches_alone(path):
            yield path


def content() -> dict[str, Any]:
    """Return what is in the file."""
    plugins = sorted(path.parent.name for path in DEPLOYMENTS.glob("*/kustomization.yaml"))
    return {name: of_plugin(DEPLOYMENTS / name) for name in plugins} | {DRA.name: of_dra()}


def of_dra() -> dict[str, Any]:
    """Return what DRA adds to a plugin: the patch of its DaemonSet, and the objects beside it."""
    before, made = render(DEPLOYMENTS / DRA_OF), render(DEPLOYMENTS / DRA_OF, [DRA])
    (daemon_set,) = (one for one in before if one["kind"] == "DaemonSet")
    (account,) = (one for one in made if one["kind"] == "ServiceAccount")
    known = {identity(one) for one in before}
    return {
        "account": account["metadata"]["name"],
        "driver": account["metadata"]["annotations"][DRIVER],
        "patch": patch(DEPLOYMENTS / DRA_OF, DRA, daemon_set),
        "rights": [account, *(one for one in made if identity(one) not in known)],
    }


def of_plugin(folder: Path) -> dict[str, Any]:
    """Return what the file has of a plugin: settings, and patches of the DaemonSet."""
    by_kind = {one["kind"]: one for one in render(folder)}
    daemon_set = by_kind["DaemonSet"]
    settings = "{}" if folder.name == BASE else by_kind["ConfigMap"]["data"]["config.yaml"]
    notes = by_kind["ServiceAccount"]["metadata"].get("annotations", {})
    return {
        "driver": notes.get(DRIVER, ""),
        "classes": [
            one
            for path in DEPLOYMENTS.glob(f"components/{folder.name}-device-class/deviceclass.yaml")
            for one in documents(path.read_bytes())
        ],
        "daemonSet": daemon_set,
        "settings": yaml.safe_load(settings),
        "components": {one.name: patch(folder, one, daemon_set) for one in components()},
    }


def patch(folder: Path, component: Path, before: Manifest) -> Manifest:
    """Return what a component changes in the DaemonSet of a plugin."""
    (after,) = (one for one in render(folder, [component]) if identity(one) == identity(before))
    return difference(before, after)


def write(file: Path = FILE) -> None:
    """See the module."""
    text = json.dumps(content()) + "\n"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        scratch = file.with_name(f"{file.name}.{os.getpid()}")
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(file)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
