"""Objects of the operators that deploy the two plugins."""

from typing import Final

import deviceplugin as dp
from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_rdma.migrate.peers import SHARED, SRIOV

_SRIOV_OPERATOR: Final = {
    "SriovNetworkNodePolicy": "which creates the functions that it describes",
    "SriovNetworkNodeState": "which writes what it has found on a node",
    "SriovNetworkPoolConfig": "which sets up nodes by it",
    "SriovOperatorConfig": "which has no field that switches its device plugin off",
    **dict.fromkeys(
        ("SriovNetwork", "SriovIBNetwork", "OVSNetwork"), "which makes a network for pods of it"
    ),
}
_MADE: Final = (
    "what it makes of its objects can be migrated: kubectl --namespace NAMESPACE get "
    "daemonset/sriov-device-plugin configmap/device-plugin-config --output yaml"
)
_POLICIES: Final = ("NicClusterPolicy", "NicNodePolicy")
"""Objects of NVIDIA's network operator."""
_PLUGINS: Final = {"sriovDevicePlugin": SRIOV, "rdmaSharedDevicePlugin": SHARED}
_IMAGE: Final = ("image", "repository", "version")
_OURS: Final = {
    "imagePullSecrets": "not taken over: put those for our image into its DaemonSet",
    "containerResources": "not taken over; ours has limits of its own",
    "useCdi": "not supported: containers get the device nodes",
}
_OTHERS: Final = {
    **dict.fromkeys(
        (
            *("global", "ofedDriver", "ibKubernetes", "secondaryNetwork", "nvIpam"),
            *("nicFeatureDiscovery", "docaTelemetryService", "nicConfigurationOperator"),
            *("spectrumXOperator", "deploymentNodeAffinity", "deploymentTolerations"),
            *("labels", "annotations", "psp"),
        ),
        "stays with the operator",
    ),
    "nodeAffinity": "not taken over: ours runs on all nodes, and is idle without cards",
    "nodeSelector": "not taken over: put it into our DaemonSet, or ours runs on all nodes",
    "tolerations": "not needed: ours tolerates all taints",
}


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of an object of an operator; None for anything else.

    Raises:
        ConfigError: Its configuration is missing, or ours cannot read it.
    """
    if why := _SRIOV_OPERATOR.get(workload.kind):
        workload.account.drop(workload.root, f"stays with the operator, {why}; {_MADE}")
        return None
    return _of_policy(workload) if workload.kind in _POLICIES else None


def _of_policy(workload: Workload) -> Migration | None:
    given = {name: peer for name, peer in _PLUGINS.items() if workload.has("spec", name)}
    if not given:
        return None
    workload.key("status")
    for key, why in _OTHERS.items():
        workload.drop(why, "spec", key)
    result, *others = [peer.migration() for peer in given.values()]
    for other in others:
        result.peer = f"{result.peer} and {other.peer.removeprefix('the ')}"
        result.differences += other.differences
    result.configuration = {
        key: value
        for name, peer in given.items()
        for key, value in peer.read(_config(workload, name)).items()
    }
    for name in given:
        for key in _IMAGE:
            workload.key("spec", name, key)
        for key, why in _OURS.items():
            workload.drop(why, "spec", name, key)
    parts = " and ".join(f"spec.{name}" for name in given)
    result.differs(
        workload.kind, f"take {parts} out of it, and its operator removes the plugin of that"
    )
    return result


def _config(workload: Workload, name: str) -> Setting:
    found = workload.key("spec", name, "config")
    if found is None:
        raise dp.ConfigError(
            f"{workload.place}: spec.{name}.config: is missing: without it the plugin reads a file "
            "of the node, which is needed here"
        )
    if not isinstance(found.value, str):
        raise found.wrong("a string with the configuration")
    return found
