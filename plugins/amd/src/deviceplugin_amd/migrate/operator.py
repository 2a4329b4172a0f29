"""What becomes of the plugin of AMD's GPU operator, which itself stays."""

import json
import posixpath
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any, Final

from deviceplugin import ConfigError
from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_amd.migrate.plugin import NAMING, migration

CHART: Final = "gpu-operator-charts"
"""The name of the operator's chart."""
GROUP: Final = "amd.com/"
KIND: Final = "DeviceConfig"
STAYS: Final = (
    *("driver", "metricsExporter", "configManager", "testRunner", "remediationWorkflow"),
    *("draDriver", "commonConfig"),
)
"""Fields of the specification that are of other parts of the operator."""
LABELLER: Final = (
    *("enableNodeLabeller", "nodeLabellerImage", "nodeLabellerImagePullPolicy"),
    *("nodeLabellerTolerations", "nodeLabellerArguments"),
)
"""Fields of the plugin that are of the node labeller."""
_POLICY: Final = "IfNotPresent"
PLUGIN: Final[Mapping[str, str]] = {
    "enableDevicePlugin": "",
    "devicePluginImage": "",
    "devicePluginImagePullPolicy": f"ours is {_POLICY}",
    "devicePluginTolerations": "",
    "imageRegistrySecret": "",
    "upgradePolicy": "not taken over; ours is RollingUpdate, 10% of the nodes at a time",
    "kubeletSocketPath": "",
    "hostNetwork": "ours does not need it",
    **dict.fromkeys(LABELLER, ""),
}
"""Fields of the plugin beside its arguments, and why they are not taken over; "" if they are, or
are not ours."""
_SAME: Final[Mapping[str, Any]] = {
    "devicePluginImagePullPolicy": _POLICY,
    "hostNetwork": False,
}
"""Values that make no difference."""
ARGUMENTS: Final = "devicePluginArguments"
VALUES: Final = (
    *("node-feature-discovery", "kmm", "remediation", "installdefaultNFDRule", "upgradeCRD"),
    *("controllerManager", "kmmDevicePlugin", "kmmModuleLoader", "draDriver", "managerConfig"),
    *("kubernetesClusterDomain", "metricsService", "nodeLabeller", "metricsExporter", "testRunner"),
    *("configManager", "utilsContainer", "defaultDCMConfigMap", "global", "crds"),
)
"""Values of the operator's chart beside the DeviceConfig."""
SIGNS: Final = frozenset({"kmmDevicePlugin", "installdefaultNFDRule", "crds"})
"""Values that show that the chart is the operator's."""
_OFF: Final = {"spec": {"devicePlugin": {"enableDevicePlugin": False}}}
_STANDARD: Final = "/var/lib/kubelet/device-plugins"


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of a DeviceConfig, or of one in Helm values; None for anything else.

    Raises:
        ConfigError: A value is invalid, or there is no plugin for containers.
    """
    values = workload.values or {}
    if workload.kind == KIND and str(values.get("apiVersion")).startswith(GROUP):
        workload.key("status")
        return _migrate(workload, ("spec",))
    if workload.kind or not {"deviceConfig", *SIGNS} & values.keys():
        return None
    install = workload.has("crds", "defaultCR", "install")
    if "deviceConfig" not in values or (install and install.value is False):
        workload.account.drop(
            workload.root[:1], f"{CHART}: has no {KIND}: give the one that is used"
        )
        return None
    result = _migrate(workload, ("deviceConfig", "spec"))
    _note_rest(workload, (), VALUES, result)
    return result


def _migrate(workload: Workload, spec: tuple[str, ...]) -> Migration:
    plugin = (*spec, "devicePlugin")
    _check_plugin(workload, spec)
    partitions = workload.has(*spec, "configManager", "enable")
    result = migration(
        workload.key(*plugin, ARGUMENTS, NAMING),
        has_partitions=partitions is not None and partitions.value is True,
    )
    selector = workload.key(*spec, "selector")
    tolerations = workload.key(*plugin, "devicePluginTolerations")
    result.pod |= {
        "nodeSelector": selector.value if selector else None,
        "tolerations": tolerations.value if tolerations else None,
        "imagePullSecrets": list(_secrets(workload, spec)),
        "volumes": list(_volumes(workload, plugin)),
    }
    for key, why in PLUGIN.items():
        given = workload.has(*plugin, key)
        if why and given and given.value != _SAME.get(key):
            workload.drop(why, *plugin, key)
        else:
            workload.key(*plugin, key)
    _note_rest(workload, spec, STAYS, result)
    result.differs(
        "enableDevicePlugin",
        "false leaves the rest of AMD's operator as it is, the node labeller too; releases before "
        "1.5.0 do not have it",
    )
    result.stop.append(_switch(workload))
    return result


def _check_plugin(workload: Workload, spec: tuple[str, ...]) -> None:
    is_on = workload.key(*spec, "devicePlugin", "enableDevicePlugin")
    if is_on and is_on.value is not True:
        if is_on.value is not False:
            raise is_on.wrong("true or false")
        raise ConfigError(f"{is_on.place}: false: there is no device plugin to migrate")
    driver = workload.has(*spec, "driver", "driverType")
    if driver and driver.value != "container":
        raise ConfigError(
            f"{driver.place}: {driver.value!r}: GPUs of virtual machines are offered by the "
            "generic plugin: {name: gpu, groups: [{select: {subsystem: pci, driver: vfio-pci, "
            'vendor: "1002"}, nodes: [vfio]}]}'
        )


def _note_rest(
    workload: Workload, above: tuple[str, ...], keys: tuple[str, ...], result: Migration
) -> None:
    """Note what stays with the operator."""
    there = [key for key in keys if (given := workload.key(*above, key)) and given.value != {}]
    if there:
        result.differs(", ".join(there), "stays with AMD's operator")


def _secrets(workload: Workload, spec: tuple[str, ...]) -> Iterator[Any]:
    for given in (
        workload.key(*spec, "devicePlugin", "imageRegistrySecret"),
        workload.has(*spec, "commonConfig", "imageRegistrySecrets"),
    ):
        found = given.value if given and given.value else []
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
                raise Setting(given.place if given else "", found).wrong("a name of a secret")
            yield {"name": one["name"]}


def _volumes(workload: Workload, plugin: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield our volumes of a kubelet with another root."""
    given = workload.key(*plugin, "kubeletSocketPath")
    path = given.value if given else _STANDARD
    if given and (not isinstance(path, str) or not path.startswith("/")):
        raise given.wrong("an absolute path")
    path = posixpath.normpath(path)
    if path == _STANDARD:
        return
    yield {"name": "device-plugins", "hostPath": {"path": path}}
    if posixpath.basename(path) == "device-plugins":
        there = posixpath.join(posixpath.dirname(path), "pod-resources")
        yield {"name": "pod-resources", "hostPath": {"path": there}}


def _switch(workload: Workload) -> str:
    names = [workload.has("metadata", key) for key in ("namespace", "name")]
    namespace, name = (str(one.value) if one else "" for one in names)
    if not workload.kind:
        namespace, name = "NAMESPACE", "default"
    where = f"--namespace {quote(namespace)} " if namespace else ""
    patch = f"--type merge --patch {quote(json.dumps(_OFF))}"
    return f"kubectl {where}patch deviceconfig {quote(name)} {patch}"
