"""Writing the overlay: patches for what is kept of a peer's pod, and comments on the rest."""

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from deviceplugin.kit.migration import Migration
from deviceplugin_cli.migrate._compare import Comparison

_WIDTH: Final = 96
_ODD: Final = re.compile("[^a-z0-9]+")


def overlay(
    migration: Migration, comparison: Comparison, deployments: str, head: Sequence[str]
) -> str:
    """Return the text of ``kustomization.yaml``."""
    differences = [f"* {one}" for one in (*migration.differences, *comparison.differences)]
    comments = [*head, "", f"Differences ({len(differences)}):", *differences]
    kustomization = _kustomization(migration, comparison, deployments)
    return f"{''.join(map(_comment, comments))}{_yaml(kustomization)}"


def _comment(text: str) -> str:
    """Return lines of a comment. Manifests may have any characters; commands are not wrapped."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    if text.startswith(" "):
        return f"# {printable}\n"
    indent = "  " if text.startswith("* ") else ""
    lines = wrap(
        printable, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines) or "#\n"


def _kustomization(
    migration: Migration, comparison: Comparison, deployments: str
) -> Mapping[str, Any]:
    root = deployments.rstrip("/")
    components = [f"{root}/components/{name}" for name in dict.fromkeys(migration.components)]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": f"{migration.plugin}-device-plugin",
        "resources": [f"{root}/{migration.plugin}"],
        **({"components": components} if components else {}),
        "patches": [
            {"target": {"kind": kind, **({"name": name} if name else {})}, "patch": _yaml(patch)}
            for kind, name, patch in _patches(migration, comparison)
        ],
    }


def _patches(
    migration: Migration, comparison: Comparison
) -> Iterator[tuple[str, str, Sequence[Any] | Mapping[str, Any]]]:
    text = _yaml(migration.configuration)
    # The path is last, because kustomize cuts the newline at the end of a patch.
    replaced = [{"op": "replace", "value": text, "path": "/data/config.yaml"}]
    yield "ConfigMap", "config", replaced
    for name, data in migration.config_maps.items():
        yield "ConfigMap", name, [{"op": "replace", "value": dict(data), "path": "/data"}]
    changed = _daemon_set(migration, comparison)
    if changed:
        names = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "any"}}
        yield "DaemonSet", "", {**names, "spec": changed}


def _daemon_set(migration: Migration, comparison: Comparison) -> dict[str, Any]:
    """Return the changes of the DaemonSet's specification."""
    container = _container(migration, comparison)
    pod = {**comparison.pod, **container, **_volumes(migration, comparison)}
    parts = {"metadata": comparison.metadata, "spec": pod}
    template = {key: part for key, part in parts.items() if part}
    strategy = comparison.spec.get("updateStrategy", {})
    if strategy.get("type") == "OnDelete":
        strategy["rollingUpdate"] = None  # ours has one, which is for the other type
    return {**comparison.spec, **({"template": template} if template else {})}


def _container(migration: Migration, comparison: Comparison) -> dict[str, Any]:
    container = dict(comparison.container)
    env = list(container.get("env", []))  # first, because the kubelet fills in what stands before
    names = [one["name"] for one in env]
    env += [
        {"name": name, "value": value}
        for name, value in migration.variables.items()
        if name not in names
    ]
    if env:
        container["env"] = env
    if migration.mounts:
        container["volumeMounts"] = [
            {"name": _volume(path), "mountPath": path, "readOnly": True}
            for path in migration.mounts
        ]
    return {"containers": [{"name": "device-plugin", **container}]} if container else {}


def _volumes(migration: Migration, comparison: Comparison) -> dict[str, Any]:
    mounted = [
        {"name": _volume(path), "hostPath": {"path": host, "type": "Directory"}}
        for path, host in migration.mounts.items()
    ]
    volumes = [*comparison.volumes, *mounted]
    return {"volumes": volumes} if volumes else {}


def _volume(path: str) -> str:
    return f"host-{_ODD.sub('-', path.lower()).strip('-')}"[:63].rstrip("-")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes strings of several lines as blocks."""

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    written: str = yaml.dump(
        value,
        Dumper=Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=90,
    )
    return written
