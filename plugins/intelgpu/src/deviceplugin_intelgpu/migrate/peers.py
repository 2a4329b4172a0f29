"""Intel's plugins and their charts: which one it is, and what its keys stand for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin import ConfigError
from deviceplugin.kit.migration import Workload

PLUGINS: Final = ("gpu", "npu", "qat", "sgx", "dsa", "iaa", "dlb")
_IMAGE: Final = re.compile(rf"intel-({'|'.join(PLUGINS)})-plugin")
_KIND: Final = re.compile(rf"({'|'.join(PLUGINS)})deviceplugin", re.IGNORECASE)
_GROUP: Final = "deviceplugin.intel.com/"
LABEL: Final = "intel.feature.node.kubernetes.io/{}"
"""The label of nodes with the devices of a plugin. A rule of its chart makes it."""
_OWN_KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("enableMonitoring", "monitoringMode", "allocationPolicy"), "gpu"),
    **dict.fromkeys(("allowIDs", "denyIDs", "bypathMode", "resourceManager"), "gpu"),
    **dict.fromkeys(("dpdkDriver", "kernelVfDrivers", "maxNumDevices"), "qat"),
    **dict.fromkeys(("enclaveLimit", "provisionLimit"), "sgx"),
}
"""Helm values that one chart has alone."""
_SIGNS: Final = frozenset({"sharedDevNum", "nodeFeatureRule", *_OWN_KEYS})
"""Helm values that show that a chart is Intel's."""

_GENERIC: Final = "no plugin of ours is for it alone; the generic plugin can offer its devices:"
_CHART: Final = "intel-device-plugins-{}"
_INSTALLER: Final = (
    ("metadata", "name"),
    ("spec", "chart", "spec", "chart"),
    ("spec", "chartRef", "name"),
    ("spec", "source", "chart"),
)
"""Where objects that install a chart name it."""
_WORD: Final = re.compile(rf"(?<![a-z])(?:({'|'.join(PLUGINS)})(?:deviceplugin)?|i915)(?![a-z])")
ADVICE: Final[Mapping[str, str]] = {
    "qat": (
        f"{_GENERIC} domain: qat.intel.com, and as an entry {{name: generic, groups: [{{select: "
        '{subsystem: pci, driver: vfio-pci, vendor: "8086", class: "0b40"}, nodes: [vfio]}], env: '
        '{"QAT{position}": "{address}"}}; bind the functions to vfio-pci yourself; services and '
        "heartbeats are not known"
    ),
    "sgx": (
        f"{_GENERIC} domain: sgx.intel.com, and the entries enclave and provision of "
        "plugins/generic/recipes.yaml; there is no webhook and no sgx.intel.com/epc"
    ),
    "dsa": (
        f"{_GENERIC} domain: dsa.intel.com, and the entries wq-user-dedicated and wq-user-shared "
        "of plugins/generic/recipes.yaml; work queues have to be configured already"
    ),
    "iaa": (
        f"{_GENERIC} domain: iaa.intel.com, and the entries wq-user-dedicated and wq-user-shared "
        'of plugins/generic/recipes.yaml with name: "iax!*"; work queues have to be configured '
        "already"
    ),
    "dlb": (
        f"{_GENERIC} domain: dlb.intel.com, the component host-dev, and as an entry {{name: pf, "
        "groups: [{paths: [{path: /dev/dlb*}]}]}"
    ),
    "operator": (
        "values of the operator's chart have no settings of a plugin: give its objects, kubectl "
        "get gpudeviceplugins,npudeviceplugins,fpgadeviceplugins --output yaml"
    ),
}
"""What is said of those that have no plugin here."""

SPEC: Final[Mapping[str, str]] = {
    "sharedDevNum": "shared-dev-num",
    "logLevel": "v",
    "enableMonitoring": "enable-monitoring",
    "monitoringMode": "monitoring-mode",
    "preferredAllocationPolicy": "allocation-policy",
    "allowIDs": "allow-ids",
    "denyIDs": "deny-ids",
    "bypathMode": "bypath",
    "resourceManager": "resource-manager",
}
"""Fields of the objects, and the flags that Intel's operator makes of them."""
VALUES: Final[Mapping[str, str]] = {
    **{key: flag for key, flag in SPEC.items() if flag != "allocation-policy"},
    "allocationPolicy": "allocation-policy",
}
"""The same for the charts' values."""


COMMUNITY: Final[Mapping[str, str]] = {"sharedDeviceNumber": "shared-dev-num"}
"""The same for charts of others that name the image of a plugin."""


@dataclass(frozen=True)
class Recognized:
    """One of Intel's plugins, and where its settings are."""

    plugin: str
    keys: Mapping[str, str] | None = None
    """Keys and their flags; None for a container."""
    prefix: tuple[str, ...] = ()
    """Of the keys."""
    above: tuple[str, ...] = ()
    """Of the keys of a chart that its objects do not have."""

    @property
    def is_chart(self) -> bool:
        """Whether it is Intel's chart, which has settings by itself."""
        return self.keys is VALUES


def recognized(workload: Workload) -> Recognized | None:
    """Return which of Intel's plugins it is, or that it is its operator's chart.

    Raises:
        ConfigError: They are values of one of several charts.
    """
    image = _IMAGE.fullmatch(workload.name)
    if workload.values is None:
        return Recognized(image[1]) if image else None
    if workload.kind:
        kind = _KIND.fullmatch(workload.kind)
        is_intels = str(workload.values.get("apiVersion")).startswith(_GROUP)
        return Recognized(kind[1].lower(), SPEC, ("spec",)) if kind and is_intels else None
    return Recognized(image[1], COMMUNITY) if image else _chart(workload, workload.values)


def _chart(workload: Workload, values: Mapping[str, Any]) -> Recognized | None:
    for name in PLUGINS:
        inside = (_CHART.format(name),)
        chart = values.get(inside[0])
        if isinstance(chart, Mapping) and chart.get("enabled") is not False:
            return Recognized(name, VALUES, inside, inside)
    old = values.get("gpu")
    if isinstance(old, Mapping) and isinstance(old.get("spec"), Mapping):
        return Recognized("gpu", VALUES, ("gpu", "spec"), ("gpu",))
    manager = values.get("manager")
    has_devices = isinstance(manager, Mapping) and isinstance(manager.get("devices"), Mapping)
    if has_devices or "controllerExtraArgs" in values:
        return Recognized("operator")
    if not _SIGNS & values.keys():
        return None
    own = workload.name.removeprefix("intel-").removesuffix("-plugin")
    known = {own} & {*PLUGINS} or {_OWN_KEYS[key] for key in values if key in _OWN_KEYS}
    known = known or set(_named(workload))
    if len(known) != 1:
        raise ConfigError(
            f"{workload.place}: these values can be of several of Intel's charts "
            f"({', '.join(sorted(known) or PLUGINS)}): add its name, as in name: gpudeviceplugin"
        )
    return Recognized(known.pop(), VALUES)


def _named(workload: Workload) -> Iterator[str]:
    """Yield the plugins that values, or what installs the chart with them, name."""
    values, account = workload.values or {}, workload.account
    selector = values.get("nodeSelector")
    words = [values.get("name"), *(selector if isinstance(selector, Mapping) else ())]
    words += [account.get((*workload.root[:1], *path)) for path in _INSTALLER]
    for found in _WORD.finditer(" ".join(map(str, words)).lower()):
        yield found[1] or "gpu"
