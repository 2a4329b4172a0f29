"""Usual keys of Helm values: those of a DaemonSet by other names, and those that none has."""

from collections.abc import Mapping
from typing import Final

from deviceplugin_cli.migrate._meaning import NAMESPACES, PROBES

CHART: Final[Mapping[str, tuple[str, str]]] = {
    **{
        key: ("PodSpec", key)
        for key in (
            *("affinity", "dnsConfig", "dnsPolicy", "hostAliases", "imagePullSecrets"),
            *("nodeSelector", "priorityClassName", "runtimeClassName", "tolerations"),
            *("schedulerName", "terminationGracePeriodSeconds", *NAMESPACES),
            *("topologySpreadConstraints",),
        )
    },
    **{key: ("Container", key) for key in ("resources", "securityContext", "lifecycle", *PROBES)},
    "podSecurityContext": ("PodSpec", "securityContext"),
    "image.pullPolicy": ("Container", "imagePullPolicy"),
    "imagePullPolicy": ("Container", "imagePullPolicy"),
    "updateStrategy": ("DaemonSetSpec", "updateStrategy"),
    "podAnnotations": ("ObjectMeta", "annotations"),
    "podLabels": ("ObjectMeta", "labels"),
}
"""Usual keys of Helm values, and the type and the field of a DaemonSet that they become."""
OF_CHARTS: Final[Mapping[str, str]] = {
    "nameOverride": "not taken over",
    "fullnameOverride": "not taken over",
    "namespaceOverride": "not taken over; ours has a namespace of its own",
    "serviceAccount": "ours has one of its own, without a token",
    "rbac": "ours asks nothing of the API server",
    "commonLabels": "not taken over",
}
"""Usual keys of Helm values that no DaemonSet has, and what becomes of them."""
