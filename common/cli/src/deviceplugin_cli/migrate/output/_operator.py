"""The result as objects of our operator."""

from collections.abc import Mapping
from typing import Any, Final

from deviceplugin_cli.migrate.output._deployments import Deployment, Image, manifest_keys

_PREFIX: Final = "DP_"


def device_plugin(
    deployment: Deployment, image: Image, defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return a ``DevicePlugin``, and what it cannot say.

    ``defaults`` are the settings of a plugin that is given none: a setting of our manifests that
    the input does not have has to be named.
    """
    migration, lost = deployment.migration, list[str]()
    whole = _settings(deployment.configuration, "", lost)
    references = [one["name"] for one in deployment.made.comparison.container.get("env", ())]
    for name, value in migration.variables.items():
        if name in references:
            continue  # "env" is what is lost
        if name.startswith(_PREFIX):
            whole[name.removeprefix(_PREFIX).lower().replace("_", "-")] = value
        else:
            lost.append(f"variable {name}: an object sets none")
    base = {**_named(manifest_keys(migration.plugin), whole, defaults, lost), **whole}
    profiles = {
        value: _settings(one, f"profile {value}: ", lost)
        for value, one in migration.profiles.items()
    }
    spec = {
        "plugin": migration.plugin,
        **({"image": str(image)} if image.given else {}),
        "nodeSelector": {
            **deployment.made.comparison.pod.get("nodeSelector", {}),
            **_runs(deployment),
        },
        **({"components": [*dict.fromkeys(migration.components)]} if migration.components else {}),
        **({migration.plugin: base} if base else {}),
    }
    if profiles:
        spec["profileLabel"] = migration.profile_label
        spec["profiles"] = {
            value: {migration.plugin: {**_named(base, one, defaults, lost), **one}}
            for value, one in profiles.items()
        }
    lost += _lost(deployment)
    name = f"{migration.plugin}{deployment.suffix}"[:40].rstrip("-")
    return {
        "apiVersion": "deviceplugin.dev/v1alpha1",
        "kind": "DevicePlugin",
        "metadata": {"name": name},
        "spec": spec,
    }, lost


def _runs(deployment: Deployment) -> dict[str, str]:
    return {deployment.waits: "run"}


def _settings(configuration: Any, place: str, lost: list[str]) -> dict[str, Any]:
    if isinstance(configuration, Mapping):
        return dict(configuration)
    lost.append(f"{place}configuration: a list, where an object has settings by name")
    return {}


def _named(
    others: Any, own: Mapping[str, Any], defaults: Mapping[str, Any], lost: list[str]
) -> dict[str, Any]:
    """Return the default of each setting that would be taken from elsewhere."""
    missing = [key for key in others if key not in own]
    lost += [f"{key}: has no default that could be named" for key in missing if key not in defaults]
    return {key: defaults[key] for key in missing if key in defaults}


def _lost(deployment: Deployment) -> list[str]:
    migration, comparison = deployment.migration, deployment.made.comparison
    pod = [key for key in comparison.pod if key != "nodeSelector"]
    fields = [*pod, *comparison.container, *comparison.spec, *comparison.metadata]
    volumes = [one["name"] for one in comparison.volumes]
    return [
        *(f"{key}: an object has no such field" for key in fields),
        *(f"host path {path}: an object has no volumes" for path in migration.mounts),
        *(f"volume {name}: an object has no volumes" for name in volumes),
        *(f"ConfigMap {name}: an object has none" for name in migration.config_maps),
    ]
