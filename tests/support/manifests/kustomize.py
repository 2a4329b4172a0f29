"""Kustomizations of ``deployments/``, rendered as the operator does and as kustomize does.

Where the real one is to be had, the contract tests compare both.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from deviceplugin_operator.manifests.kustomize import CLUSTER_WIDE, Manifest, names, render

__all__ = [
    "CLUSTER_WIDE",
    "Manifest",
    "in_order",
    "names",
    "overlay",
    "render",
    "render_by_kustomize",
]

ROOT = Path(__file__).parents[3]


def in_order(manifests: Any) -> Any:
    """Sort lists of things with names: renderers put what is added in different places."""
    if isinstance(manifests, dict):
        return {key: in_order(value) for key, value in manifests.items()}
    if isinstance(manifests, list):
        return sorted(map(in_order, manifests), key=lambda one: json.dumps(one, sort_keys=True))
    return manifests


def overlay(place: Path, plugin: str, *components: str) -> Path:
    """Write to ``place`` what a user does who wants more than a plugin's own folder."""
    deployments = os.path.relpath(ROOT / "deployments", place.resolve())
    spec = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": f"{plugin}-device-plugin",
        "resources": [f"{deployments}/{plugin}"],
        "components": [f"{deployments}/components/{component}" for component in components],
    }
    (place / "kustomization.yaml").write_text(json.dumps(spec))
    return place


def render_by_kustomize(folder: Path) -> list[Manifest] | None:
    """Return the same by the real kustomize; None where there is none that works."""
    for command in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(command[0]) is None:
            continue
        # Asked for something trivial first, because a kubectl can be there and not work.
        done = subprocess.run([*command, "--help"], capture_output=True, check=False, timeout=15)
        if done.returncode == 0:
            words = [*command, str(folder)]
            text = subprocess.run(words, capture_output=True, check=True, timeout=15).stdout
            return [_placed(manifest) for manifest in yaml.safe_load_all(text)]
    return None


def _placed(manifest: Manifest) -> Manifest:
    """Return a manifest as a cluster takes it: old kustomizes put younger kinds in a namespace."""
    if manifest["kind"] in CLUSTER_WIDE:
        manifest["metadata"].pop("namespace", None)
    return manifest
