"""What our pod gets besides its configuration, as Kubernetes writes it."""

import re
from typing import Any, Final

from deviceplugin_cli.migrate.output._deployments import Deployment

_ODD: Final = re.compile("[^a-z0-9]+")


def container_of(deployment: Deployment) -> dict[str, Any]:
    """Return fields of the plugin's container, without its name."""
    migration, container = deployment.migration, dict(deployment.made.comparison.container)
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
    return container


def volumes_of(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the volumes that are others than in our manifests."""
    mounted = [
        {"name": _volume(path), "hostPath": {"path": host, "type": "Directory"}}
        for path, host in deployment.migration.mounts.items()
    ]
    return [*deployment.made.comparison.volumes, *mounted]


def _volume(path: str) -> str:
    return f"host-{_ODD.sub('-', path.lower()).strip('-')}"[:63].rstrip("-")
