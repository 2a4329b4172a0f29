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
from kustomize import DEPLOYMENTS, difference, has_patches_alone, identity, render

OF_AGENT = "node-"
"""How components begin that are for deployments/node alone."""
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
    return {name: of_plugin(DEPLOYMENTS / name) for name in plugins}


def of_plugin(folder: Path) -> dict[str, Any]:
    """Return what the file has of a plugin: settings, and patches of the DaemonSet."""
    by_kind = {one["kind"]: one for one in render(folder)}
    daemon_set = by_kind["DaemonSet"]
    settings = "{}" if folder.name == BASE else by_kind["ConfigMap"]["data"]["config.yaml"]
    return {
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
