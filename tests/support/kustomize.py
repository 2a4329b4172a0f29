"""Renders what ``deployments/`` uses of kustomize, so that it is checked without kustomize too.

Anything else in a kustomization is an error here. Where the real one is to be had, the contract
tests compare both.
"""

import shutil
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


def render(folder: Path) -> list[Manifest]:
    """Return the manifests of the kustomization in ``folder``."""
    spec = yaml.safe_load((folder / "kustomization.yaml").read_text())
    kinds = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    assert kinds == {key: spec.pop(key) for key in kinds}
    manifests = [
        manifest for name in spec.pop("resources") for manifest in _load((folder / name).resolve())
    ]
    for key, value in sorted(spec.items(), key=lambda step: step[0] != "patches"):  # these first
        assert key in _STEPS, f"{folder}: {key!r} is not known here"
        for manifest in manifests:
            _STEPS[key](manifest, value)
    return manifests


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
            return list(yaml.safe_load_all(text))
    return None


def _load(path: Path) -> list[Manifest]:
    if path.is_dir():
        return render(path)
    return [manifest for manifest in yaml.safe_load_all(path.read_text()) if manifest]


def _namespace(manifest: Manifest, name: str) -> None:
    manifest["metadata"]["name" if manifest["kind"] == "Namespace" else "namespace"] = name


def _prefix(manifest: Manifest, prefix: str) -> None:
    if manifest["kind"] == "Namespace":
        return
    manifest["metadata"]["name"] = prefix + manifest["metadata"]["name"]
    if manifest["kind"] == "DaemonSet":
        pod = manifest["spec"]["template"]["spec"]
        pod["serviceAccountName"] = prefix + pod["serviceAccountName"]
        for volume in pod.get("volumes", ()):
            if "configMap" in volume:
                volume["configMap"]["name"] = prefix + volume["configMap"]["name"]


def _labels(manifest: Manifest, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        assert {"pairs", "includeSelectors"} == set(entry)
        manifest["metadata"].setdefault("labels", {}).update(entry["pairs"])
        if manifest["kind"] == "DaemonSet":
            spec = manifest["spec"]
            spec["selector"]["matchLabels"].update(entry["pairs"])
            spec["template"]["metadata"]["labels"].update(entry["pairs"])


def _images(manifest: Manifest, entries: list[dict[str, str]]) -> None:
    if manifest["kind"] != "DaemonSet":
        return
    for container in manifest["spec"]["template"]["spec"]["containers"]:
        for entry in entries:
            if container["image"] == entry["name"]:
                container["image"] = f"{entry['newName']}:{entry['newTag']}"


def _patches(manifest: Manifest, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        if entry["target"] == {"kind": manifest["kind"]}:
            for operation in yaml.safe_load(entry["patch"]):
                _add(manifest, **operation)


def _add(manifest: Manifest, op: str, path: str, value: object) -> None:
    assert op == "add", f"{op!r} is not known here"
    place: Any = manifest
    *parents, last = path.strip("/").split("/")
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if last == "-":
        place.append(deepcopy(value))
    else:
        place[last] = deepcopy(value)


_STEPS: dict[str, Callable[[Manifest, Any], None]] = {
    "namespace": _namespace,
    "namePrefix": _prefix,
    "labels": _labels,
    "images": _images,
    "patches": _patches,
}
