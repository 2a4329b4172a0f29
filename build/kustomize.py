"""Renders kustomizations, as far as ``deployments/`` uses kustomize, and compares what it renders.

Anything else in a kustomization is an error. The contract tests compare it with the real one.
"""

import pickle
import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin_operator.manifests import KEYS, Manifest, merge

DEPLOYMENTS: Final = Path(__file__).parents[1] / "deployments"
CLUSTER_WIDE: Final = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "DeviceClass"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    "SecurityContextConstraints",
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
"""Kinds that are in no namespace, besides Namespace."""


class KustomizationError(ValueError):
    """A kustomization uses something that is not supported here."""


def render(folder: Path, components: Iterable[Path] = ()) -> list[Manifest]:
    """Return the manifests of the kustomization in ``folder``, with more ``components``."""
    spec = _read(folder, "Kustomization", "v1beta1")
    manifests = _resources(folder, spec)
    manifests += [_config_map(folder, entry) for entry in spec.pop("configMapGenerator", ())]
    for name in spec.pop("components", ()):
        _add_component(folder / name, manifests)
    _apply(folder, spec, manifests)
    for component in components:
        _add_component(component, manifests)
    _refer(manifests)
    return manifests


def has_patches_alone(component: Path) -> bool:
    """Return whether ``component`` changes the DaemonSet, and adds no object beside it."""
    return "resources" not in _read(component, "Component", "v1alpha1")


def _add_component(folder: Path, manifests: list[Manifest]) -> None:
    component = _read(folder, "Component", "v1alpha1")
    manifests += _resources(folder, component)
    for name in component.pop("components", ()):
        _add_component(folder / name, manifests)
    _apply(folder, component, manifests)


def _refer(manifests: list[Manifest]) -> None:
    """Let bindings name the service account, and pods ConfigMaps, as they are called in the end."""
    called = {
        name: one["metadata"]["name"]
        for one in manifests
        if one["kind"] == "ConfigMap"
        for name in names(one)
    }
    pods = [_pod(one) for one in manifests if one["kind"] == "DaemonSet"]
    for volume in (each for pod in pods for each in pod.get("volumes", ())):
        for source in volume.get("projected", {}).get("sources", ()):
            if named := source.get("configMap"):
                named["name"] = called.get(named["name"], named["name"])
    accounts = [one for one in manifests if one["kind"] == "ServiceAccount"]
    for binding in (one for one in manifests if one["kind"].endswith("RoleBinding")):
        for subject in binding["subjects"]:
            (account,) = (one["metadata"] for one in accounts if subject["name"] in names(one))
            subject |= {"name": account["name"], "namespace": account["namespace"]}


def _pod(manifest: Manifest) -> Any:
    return manifest["spec"].get("template", {}).get("spec", {})


def _read(folder: Path, kind: str, version: str) -> dict[str, Any]:
    spec: dict[str, Any]
    (spec,) = _parsed((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    kinds = {"apiVersion": f"kustomize.config.k8s.io/{version}", "kind": kind}
    if kinds != {key: spec.pop(key, None) for key in kinds}:
        raise KustomizationError(f"{folder}: is not a {kind} of {version}")
    return spec


def _resources(folder: Path, spec: dict[str, Any]) -> list[Manifest]:
    names = spec.pop("resources", ())
    return [manifest for name in names for manifest in _load((folder / name).resolve())]


def _config_map(folder: Path, entry: dict[str, Any]) -> Manifest:
    """Return the ConfigMap of some files; a name that changes with them is not known here."""
    named = {key: value for key, value in entry.items() if key not in {"name", "files"}}
    if named != {"options": {"disableNameSuffixHash": True}}:
        raise KustomizationError(f"{folder}: configMapGenerator: {named} is not known here")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": entry["name"]},
        "data": {name: (folder / name).read_text(encoding="utf-8") for name in entry["files"]},
    }


def _apply(folder: Path, spec: dict[str, Any], manifests: list[Manifest]) -> None:
    replacements = spec.pop("replacements", ())
    for key, value in sorted(spec.items(), key=lambda step: step[0] != "patches"):  # these first
        if key not in _STEPS:
            raise KustomizationError(f"{folder}: {key!r} is not supported here")
        for manifest in manifests:
            _STEPS[key](manifest, value)
    for entry in replacements:  # and these last
        _replace(manifests, entry)


def _load(path: Path) -> list[Manifest]:
    if path.is_dir():
        return render(path)
    return [one for one in _parsed(path.read_text(encoding="utf-8")) if one]


def documents(text: str | bytes) -> list[Any]:
    """Return the documents of YAML, by libyaml where there is one: it takes a tenth of the time."""
    return [*yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))]


def _parsed(text: str) -> list[Any]:
    """Return the documents of a text: most of the work, and the same for many kustomizations."""
    copied: list[Any] = pickle.loads(_parsed_once(text))  # noqa: S301 - our own; a quick deepcopy
    return copied


@cache
def _parsed_once(text: str) -> bytes:
    return pickle.dumps(documents(text))


def _namespace(manifest: Manifest, name: str) -> None:
    if manifest["kind"] in CLUSTER_WIDE:
        return
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
        if not {"pairs"} <= set(entry) <= {"pairs", "includeSelectors"}:
            raise KustomizationError(f"labels: {sorted(entry)} are not pairs and includeSelectors")
        manifest["metadata"].setdefault("labels", {}).update(entry["pairs"])
        if not entry.get("includeSelectors"):
            continue
        if manifest["kind"] == "DaemonSet":
            spec = manifest["spec"]
            spec["selector"]["matchLabels"].update(entry["pairs"])
            spec["template"]["metadata"]["labels"].update(entry["pairs"])
        if manifest["kind"] == "NetworkPolicy":
            manifest["spec"]["podSelector"]["matchLabels"].update(entry["pairs"])


def _images(manifest: Manifest, entries: list[dict[str, str]]) -> None:
    if manifest["kind"] not in {"DaemonSet", "Deployment"}:
        return
    pod = manifest["spec"]["template"]["spec"]
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        for entry in entries:
            if container["image"].partition(":")[0] == entry["name"]:
                container["image"] = f"{entry['newName']}:{entry['newTag']}"


def _patches(manifest: Manifest, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        if not _is_target(manifest, **entry["target"]):
            continue
        (patch,) = _parsed(entry["patch"])
        if isinstance(patch, list):
            for operation in patch:
                _add(manifest, **operation)
        else:
            merge(manifest["spec"], patch["spec"])


def _is_target(manifest: Manifest, kind: str, name: str = "") -> bool:
    """Return whether a patch is for ``manifest``, or a replacement's source is it."""
    return manifest["kind"] == kind and name in {"", *names(manifest)}


def names(manifest: Manifest) -> set[str]:
    """Return the name, and the one without the prefix that a plugin's folder has put before it."""
    name = manifest["metadata"]["name"]
    labels = manifest["metadata"].get("labels", {})
    prefix = labels.get("app.kubernetes.io/name", "").removesuffix("device-plugin")
    return {name, name.removeprefix(prefix)}


def _replace(manifests: list[Manifest], entry: dict[str, Any]) -> None:
    wanted = dict(entry["source"])
    path = wanted.pop("fieldPath")
    (source,) = (one for one in manifests if _is_target(one, **wanted))
    place, last = _find(source, path)
    for target in entry["targets"]:
        options = target.get("options", {})
        delimiter, index = options.get("delimiter"), options.get("index", 0)
        for manifest in manifests:
            known = {"kind": manifest["kind"], "name": manifest["metadata"]["name"]}
            if not target["select"].items() <= known.items():
                continue
            for path in target["fieldPaths"]:
                found, name = _find(manifest, path)
                parts = str(found[name]).split(delimiter) if delimiter else [""]
                parts[index] = place[last]
                found[name] = str(delimiter or "").join(parts)


def _find(manifest: Manifest, path: str) -> tuple[Any, Any]:
    """Return what has the field ``path``, and the field's name there."""
    place: Any = manifest
    *parents, last = _NAMES.findall(path)
    for name in parents:
        key, is_choice, value = name.strip("[]").partition("=")
        if is_choice:
            (place,) = (one for one in place if one[key] == value)
        else:
            place = place[int(key)] if isinstance(place, list) else place[key]
    return place, int(last) if isinstance(place, list) else last.strip("[]")


def _add(manifest: Manifest, op: str, path: str, value: object) -> None:
    if op not in {"add", "replace"}:
        raise KustomizationError(f"{op!r} is not supported here")
    place: Any = manifest
    *parents, last = path.strip("/").split("/")
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if last == "-":
        place.append(deepcopy(value))
    else:
        place[last] = deepcopy(value)


def identity(manifest: Manifest) -> str:
    """Return what an object is called."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def difference(before: Manifest, after: Manifest) -> Manifest:
    """Return the strategic merge patch that makes ``after`` of ``before``, but for the order."""
    patch: Manifest = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            inner: object = difference(old, value)
        elif key in KEYS and isinstance(old, list) and old != value:
            inner = _list_difference(old, value, KEYS[key])
        else:
            inner = old != value
        if inner:
            patch[key] = value if inner is True else inner
    return patch


def _list_difference(before: list[Manifest], after: list[Manifest], key: str) -> list[Manifest]:
    """Return the same for a list whose entries are known by their ``key``."""
    old = {entry[key]: entry for entry in before}
    new = {entry[key]: entry for entry in after}
    removed = [{key: name, "$patch": "delete"} for name in old if name not in new]
    added = [entry for name, entry in new.items() if name not in old]
    changed = [
        {key: name, **change}
        for name, entry in new.items()
        if name in old and (change := difference(old[name], entry))
    ]
    return [*removed, *added, *changed]


_NAMES: Final = re.compile(r"\[[^]]+\]|[^.]+")
"""The names in a path: ``[name=main]`` is an entry of a list, ``[a.b/c]`` a key with dots."""

_STEPS: Final[dict[str, Callable[[Manifest, Any], None]]] = {
    "namespace": _namespace,
    "namePrefix": _prefix,
    "labels": _labels,
    "images": _images,
    "patches": _patches,
}
