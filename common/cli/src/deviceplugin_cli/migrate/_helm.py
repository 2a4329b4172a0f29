"""The result as values of our chart: by themselves, in a HelmRelease or in an Application."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from deviceplugin_cli.migrate._deployments import Deployment, Image, manifest_keys
from deviceplugin_cli.migrate._pod import container_of, volumes_of

CHART: Final = "device-plugins"
_VALUES: Final = (
    *("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"),
)
"""Fields of a pod that the chart has under the same name."""
_COMPONENTS: Final = {"kubelet-root": "kubeletRoot", "microk8s": "kubeletRoot"}
"""Components that the chart does not have, and the value that is there for them."""


def values(all_found: Sequence[tuple[Deployment, Image]]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the chart, and what these cannot say."""
    lost: list[str] = []
    found: dict[str, Any] = {}
    for deployment, image in all_found:
        if deployment.migration.plugin in found:
            lost.append(
                f"{deployment.name}: a release of the chart has each plugin once: use --output "
                "kustomize with --directory, or choose one with --name"
            )
        found[deployment.migration.plugin] = _of(deployment, image, lost)
    return found, lost


def _of(deployment: Deployment, image: Image, lost: list[str]) -> dict[str, Any]:
    migration, pod = deployment.migration, deployment.pod
    if not isinstance(deployment.configuration, Mapping):
        lost.append("configuration: a list, which the chart's value config cannot be")
    lost += [
        f"component {name}: the chart has the value {_COMPONENTS[name]} in its place"
        for name in migration.components
        if name in _COMPONENTS
    ]
    lost += [
        f"{key}: the chart has no value for it"
        for key in pod
        if key not in {*_VALUES, "imagePullSecrets"}
    ]
    secrets = pod.get("imagePullSecrets")
    volumes = volumes_of(deployment)
    return {
        "enabled": True,
        **({"namespace": deployment.name} if deployment.suffix else {}),
        "image": {**_image(image), **({"pullSecrets": secrets} if secrets else {})},
        "config": {**_removed(deployment), **deployment.configuration}
        if isinstance(deployment.configuration, Mapping)
        else {},
        **(
            {"components": dict.fromkeys(migration.components, True)}
            if migration.components
            else {}
        ),
        **({"configMaps": _plain(migration.config_maps)} if migration.config_maps else {}),
        **{key: pod[key] for key in _VALUES if key in pod},
        **container_of(deployment),
        **({"volumes": volumes} if volumes else {}),
    }


def _removed(deployment: Deployment) -> dict[str, None]:
    """Return what the chart would keep of its manifests: null removes it."""
    given = deployment.configuration
    keys = manifest_keys(deployment.migration.plugin)
    return dict.fromkeys(key for key in keys if key not in given)


def _plain(config_maps: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(data) for name, data in config_maps.items()}


def _image(image: Image) -> dict[str, str]:
    registry, slash, name = image.name.rpartition("/")
    parts = {
        "registry": registry if slash else "",
        "repository": name,
        "tag": image.tag,
        "digest": image.digest,
    }
    return {key: value for key, value in parts.items() if value}


def release_name(all_found: Iterable[Deployment]) -> str:
    """Return the name of a release."""
    return "-".join(dict.fromkeys(one.migration.plugin for one in all_found)) + "-device-plugin"


def helm_release(name: str, content: Mapping[str, Any], repository: str) -> list[Any]:
    """Return the objects that Flux installs the chart by."""
    api = "source.toolkit.fluxcd.io/v1"
    metadata = {"name": name, "namespace": "flux-system"}
    kind, spec = "HelmRepository", {"interval": "1h", "url": repository}
    if repository.startswith("oci://"):
        spec["type"] = "oci"
    chart = {
        "chart": CHART,
        "version": version("deviceplugin"),
        "sourceRef": {"kind": kind, "name": name},
    }
    return [
        {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec},
        {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": metadata,
            "spec": {"interval": "1h", "chart": {"spec": chart}, "values": content},
        },
    ]


def application(name: str, content: Mapping[str, Any], repository: str) -> list[Any]:
    """Return the object that Argo CD installs the chart by."""
    source = {
        # Argo CD knows a registry by the missing scheme.
        "repoURL": repository.removeprefix("oci://"),
        "chart": CHART,
        "targetRevision": version("deviceplugin"),
        "helm": {"releaseName": name, "valuesObject": content},
    }
    destination = {"server": "https://kubernetes.default.svc", "namespace": "argocd"}
    return [
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": name, "namespace": "argocd"},
            "spec": {"project": "default", "source": source, "destination": destination},
        }
    ]
