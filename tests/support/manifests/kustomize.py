"""Kustomizations of ``deployments/``, as our own renderer and the real kustomize render them.

Where the real one is to be had, the contract tests compare both.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kustomize
from deviceplugin_operator.manifests import Manifest
from kustomize import CLUSTER_WIDE, names
from patience import PATIENCE

__all__ = [
    "CLUSTER_WIDE",
    "Manifest",
    "container_of",
    "in_order",
    "kustomized",
    "names",
    "of_kind",
    "overlay",
    "pod_of",
    "render",
    "render_by_kustomize",
    "renderings",
]

ROOT = Path(__file__).parents[3]


def of_kind(manifests: Iterable[Manifest], kind: str) -> Any:
    """Return the first object of a kind."""
    return next(one for one in manifests if one["kind"] == kind)


def pod_of(manifests: Iterable[Manifest]) -> Any:
    """Return what the pods of the plugin are."""
    return of_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]


def container_of(manifests: Iterable[Manifest], name: str = "device-plugin") -> Any:
    """Return the container of the plugin, or another one in its pods."""
    return next(one for one in pod_of(manifests)["containers"] if one["name"] == name)


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


def render(folder: Path) -> list[Manifest]:
    """Return the manifests of the kustomization in ``folder``."""
    text = (folder / "kustomization.yaml").read_text(encoding="utf-8")
    return deepcopy(_rendered(folder.resolve(), text))


@cache
def _rendered(folder: Path, _text: str) -> list[Manifest]:
    """Render what many tests ask for once; ``deployments/`` does not change meanwhile."""
    return kustomize.render(folder)


def render_by_kustomize(folder: Path) -> list[Manifest] | None:
    """Return the same by the real kustomize; None where there is none that works."""
    command = _command(os.environ.get("PATH", ""))
    if command is None:
        return None
    words = [*command, str(folder)]
    text = subprocess.run(words, capture_output=True, check=True, timeout=PATIENCE).stdout
    return [_placed(one) for one in kustomize.documents(text)]


@cache
def _command(_path: str) -> tuple[str, ...] | None:
    """Return the command that renders, if it works: a kubectl can be there and not work."""
    for command in (("kustomize", "build"), ("kubectl", "kustomize")):
        if shutil.which(command[0]) is not None:
            done = subprocess.run(
                [*command, "--help"], capture_output=True, check=False, timeout=PATIENCE
            )
            if done.returncode == 0:
                return command
    return None


def kustomized(folder: Path) -> list[Manifest]:
    """Return the same, or skip the test where there is no kustomize."""
    rendered = render_by_kustomize(folder)
    if rendered is None:
        pytest.skip("no kustomize")
    return rendered


def renderings(folder: Path) -> list[list[Manifest]]:
    """Return what our renderer makes, and what the real kustomize does where there is one."""
    rendered = render_by_kustomize(folder)
    return [render(folder), *([rendered] if rendered is not None else [])]


def _placed(manifest: Manifest) -> Manifest:
    """Return a manifest as a cluster takes it: old kustomizes put younger kinds in a namespace."""
    if manifest["kind"] in CLUSTER_WIDE:
        manifest["metadata"].pop("namespace", None)
    return manifest
