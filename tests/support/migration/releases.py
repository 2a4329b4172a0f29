"""What installs charts, in its shape, and values of app-template with all that it has."""

from collections.abc import Mapping
from typing import Any, Final

APP_TEMPLATE: Final[Mapping[str, Any]] = {
    "defaultPodOptions": {"hostNetwork": True, "tolerations": [{"operator": "Exists"}]},
    "controllers": {
        "main": {
            "type": "daemonset",
            "enabled": True,
            "strategy": "RollingUpdate",
            "rollingUpdate": {"unavailable": 1},
            "annotations": {"a": "b"},
            "pod": {"nodeSelector": {"a": "b"}},
            "containers": {
                "main": {
                    "image": {"repository": "squat/generic-device-plugin", "tag": "0.2.1"},
                    "args": ["--config", "/config/config.yaml"],
                    "env": [{"name": "DOMAIN", "value": "example.com"}],
                    "probes": {"liveness": {"enabled": True, "type": "TCP"}},
                    "resources": {"limits": {"memory": "200Mi"}},
                    "securityContext": {"privileged": True},
                }
            },
        }
    },
    "configMaps": {
        "config": {
            "enabled": True,
            "data": {
                "config.yaml": "devices: [{name: aa, groups: [{paths: [{path: /dev/a}]}]}]",
            },
        }
    },
    "persistence": {
        "config": {
            "type": "configMap",
            "identifier": "config",
            "globalMounts": [
                {"path": "/config/config.yaml", "subPath": "config.yaml", "readOnly": True}
            ],
        },
        "dev": {"type": "hostPath", "hostPath": "/dev", "hostPathType": "Directory"},
        "tmp": {
            "type": "emptyDir",
            "sizeLimit": "1Mi",
            "advancedMounts": {"main": {"main": [{"path": "/tmp"}]}},
        },
        "cache": {"type": "custom", "volumeSpec": {"emptyDir": {"medium": "Memory"}}},
    },
}
"""Values whose keys are all known, with a configuration that is valid."""


def helm_release(chart: str, values: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a HelmRelease of Flux. ``spec`` has further keys of it."""
    reference = {"spec": {"chart": chart, "sourceRef": {"kind": "HelmRepository", "name": "a"}}}
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "devices", "namespace": "kube-system"},
        "spec": {"interval": "1h", "chart": reference, "values": values, **spec},
    }


def application(chart: str, **helm: Any) -> dict[str, Any]:
    """Return an Application of Argo CD. ``helm`` is what its source says of that."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "devices", "namespace": "kube-system"},
        "spec": {
            "project": "default",
            "source": {"repoURL": "https://example.com", "chart": chart, "helm": helm},
        },
    }
