"""Writing overlays: patches for what is kept of a peer's pod, and for our configuration."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deviceplugin_cli.migrate.output._deployments import Deployment, Image
from deviceplugin_cli.migrate.output._pod import container_of, volumes_of
from deviceplugin_cli.migrate.output._text import to_yaml

_HEADER = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def overlay(deployment: Deployment, image: Image, root: str) -> str:
    """Return the text of ``kustomization.yaml``; ``root`` is where our manifests are."""
    migration = deployment.migration
    components = [f"{root}/components/{name}" for name in dict.fromkeys(migration.components)]
    parts = {"newName": image.name, "newTag": image.tag, "digest": image.digest}
    return to_yaml(
        {
            **_HEADER,
            "namespace": deployment.name,
            **({"nameSuffix": deployment.suffix} if deployment.suffix else {}),
            "resources": [f"{root}/{migration.plugin}"],
            **({"components": components} if components else {}),
            "images": [
                {
                    "name": f"{migration.plugin}-device-plugin",
                    **{key: value for key, value in parts.items() if value},
                }
            ],
            "patches": [
                {
                    "target": {"kind": kind, **({"name": name} if name else {})},
                    "patch": to_yaml(patch),
                }
                for kind, name, patch in _patches(deployment)
            ],
        }
    )


def of_folders(names: Sequence[str]) -> str:
    """Return the text of a ``kustomization.yaml`` that takes those of folders beside it."""
    return to_yaml({**_HEADER, "resources": [*names]})


def _patches(
    deployment: Deployment,
) -> Iterator[tuple[str, str, Sequence[Any] | Mapping[str, Any]]]:
    # The path is last, because kustomize cuts the newline at the end of a patch.
    text = to_yaml(deployment.configuration)
    yield (
        "ConfigMap",
        "config",
        [{"op": "replace", "value": text, "path": "/data/config.yaml"}],
    )
    for name, data in deployment.migration.config_maps.items():
        yield "ConfigMap", name, [{"op": "replace", "value": dict(data), "path": "/data"}]
    names = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "any"}}
    yield "DaemonSet", "", {**names, "spec": _daemon_set(deployment)}


def _daemon_set(deployment: Deployment) -> dict[str, Any]:
    """Return the changes of the DaemonSet's specification."""
    comparison = deployment.made.comparison
    container, volumes = container_of(deployment), volumes_of(deployment)
    pod = {
        **deployment.pod,
        **({"containers": [{"name": "device-plugin", **container}]} if container else {}),
        **({"volumes": volumes} if volumes else {}),
    }
    metadata = {"metadata": comparison.metadata} if comparison.metadata else {}
    spec = dict(comparison.spec)
    if spec.get("updateStrategy", {}).get("type") == "OnDelete":
        # Ours has one, which is for the other type.
        spec["updateStrategy"] = {**spec["updateStrategy"], "rollingUpdate": None}
    return {**spec, "template": {**metadata, "spec": pod}}
