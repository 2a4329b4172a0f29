"""Manifests of peers, in their shape, and what is in an overlay."""

from typing import Any

import yaml

from manifests.kustomize import Manifest


def differences(text: str) -> list[str]:
    """Return the differences in an overlay's comments."""
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    found: list[str] = []
    for line in lines[
        next(i for i, one in enumerate(lines) if one.startswith("Differences")) + 1 :
    ]:
        if line.startswith("* "):
            found.append(line.removeprefix("* "))
        else:
            found[-1] += f" {line}"
    return found


def configuration(manifests: list[Manifest], name: str = "config.yaml") -> Any:
    """Return the plugin's configuration in the rendered manifests."""
    (text,) = (
        one["data"][name] for one in manifests if one["kind"] == "ConfigMap" and name in one["data"]
    )
    return yaml.safe_load(text)


def pod(manifests: list[Manifest]) -> Any:
    """Return the specification of the rendered pod."""
    (found,) = (one["spec"] for one in manifests if one["kind"] == "DaemonSet")
    return found["template"]["spec"]


def daemon_set(
    image: str, *arguments: str, env: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a peer's DaemonSet. ``container`` has further keys of the container, ``more`` those of
    the pod."""
    container = {
        "name": "peer",
        "image": image,
        "args": [*arguments],
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        **more.pop("container", {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "peer", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container], **more}}},
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def mounting(name: str, path: str, **more: Any) -> dict[str, Any]:
    """Return the keys of a pod that mount a ConfigMap."""
    return {
        "volumes": [{"name": "file", "configMap": {"name": name}}],
        "container": {"volumeMounts": [{"name": "file", "mountPath": path}], **more},
    }
