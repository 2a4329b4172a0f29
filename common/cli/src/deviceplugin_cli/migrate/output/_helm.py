"""The result as values of our chart: by themselves, in a HelmRelease or in an Application."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from deviceplugin_cli.migrate.output._deployments import Deployment, Image, manifest_keys
from deviceplugin_cli.migrate.output._pod import container_of, volumes_of

CHART: Final = "device-plugins"
_POD: Final = (
    *("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"),
)
"""Fields of a pod that the chart has under the same name."""
_CONTAINER: Final = ("args", "env", "resources", "volumeMounts")
"""Fields of the container that the chart has under the same name."""
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
    migration, comparison, pod = deployment.migration, deployment.made.comparison, deployment.pod
    configuration = deployment.configuration
    lost += _lost(deployment, pod)
    container = container_of(deployment)
    policy, secrets = container.pop("imagePullPolicy", ""), pod.get("imagePullSecrets")
    parts: dict[str, Any] = {
        "components": dict.fromkeys(migration.components, True),
        "configMaps": {name: dict(data) for name, data in migration.config_maps.items()},
        **{key: pod[key] for key in _POD if key in pod},
        **{key: container[key] for key in _CONTAINER if key in container},
        "volumes": volumes_of(deployment),
        "updateStrategy": comparison.spec.get("updateStrategy"),
        "labels": comparison.metadata.get("labels"),
        "podAnnotations": comparison.metadata.get("annotations"),
    }
    pull = {"pullPolicy": policy, "pullSecrets": secrets}
    return {
        "enabled": True,
        "namespace": deployment.name,
        "image": {**_image(image), **{key: value for key, value in pull.items() if value}},
        "config": {**_removed(deployment), **configuration}
        if isinstance(configuration, Mapping)
        else {},
        **{key: value for key, value in parts.items() if value},
    }


def _lost(deployment: Deployment, pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the chart has no value for."""
    if not isinstance(deployment.configuration, Mapping):
        yield "configuration: a list, which the chart's value config cannot be"
    for name in deployment.migration.components:
        if name in _COMPONENTS:
            yield f"component {name}: the chart has the value {_COMPONENTS[name]} in its place"
    comparison = deployment.made.comparison
    tables = [
        (pod, (*_POD, "imagePullSecrets")),
        (comparison.container, (*_CONTAINER, "imagePullPolicy")),
        (comparison.spec, ("updateStrategy",)),
        (comparison.metadata, ("labels", "annotations")),
    ]
    for given, known in tables:
        yield from (f"{key}: the chart has no value for it" for key in given if key not in known)


def _removed(deployment: Deployment) -> dict[str, None]:
    """Return what the chart would keep of its manifests: null removes it."""
    given = deployment.configuration
    keys = manifest_keys(deployment.migration.plugin)
    return dict.fromkeys(key for key in keys if key not in given)


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
