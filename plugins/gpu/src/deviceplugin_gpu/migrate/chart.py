"""The values of NVIDIA's chart, of all its releases."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_gpu.migrate.peers import config_map
from deviceplugin_gpu.migrate.profiles import Files, apart, chosen

_SETTINGS: Final = {
    ("compatWithCPUManager",): "pass-device-specs",
    ("migStrategy",): "mig-strategy",
    ("failOnInitError",): "fail-on-init-error",
    ("deviceListStrategy",): "device-list-strategy",
    ("deviceIDStrategy",): "device-id-strategy",
    ("nvidiaDriverRoot",): "driver-root",
    ("nvidiaDevRoot",): "dev-root",
    ("gdrcopyEnabled",): "gdrcopy-enabled",
    ("gdsEnabled",): "gds-enabled",
    ("mofedEnabled",): "mofed-enabled",
    ("deviceDiscoveryStrategy",): "device-discovery-strategy",
    ("cdi", "nvidiaHookPath"): "nvidia-cdi-hook-path",
    ("cdi", "featureFlags"): "cdi-feature-flags",
    ("mps", "root"): "mps-root",
}
_TAKEN: Final = (
    *(("gfd", "enabled"), ("nfd", "enabled"), ("devicePlugin", "enabled")),
    *(("legacyDaemonsetAPI",), ("allowDefaultNamespace",)),
)
"""What decides about objects of theirs alone, or is looked at elsewhere."""
_OF_GFD: Final = "of GPU feature discovery: not taken over"
_OF_MPS: Final = "of their MPS control daemon: not taken over"
_DROPPED: Final[dict[tuple[str, ...], str]] = {
    ("namespace",): "not taken over; ours has a namespace of its own",
    ("selectorLabelsOverride",): "not taken over: ours has labels of its own",
    ("podAnnotations",): "not taken over: add them by a patch",
    ("podSecurityContext",): "not taken over; ours has one of its own",
    ("updateStrategy",): (
        "not taken over; ours replaces 10 % of its pods at a time: change it by a patch"
    ),
    ("devicePlugin", "enableHostNetwork"): "not taken over: ours does not need it",
    ("devicePlugin", "mode"): "without effect in their chart, too",
    **{
        ("gfd", key): _OF_GFD
        for key in (
            *("nameOverride", "namespaceOverride", "noTimestamp", "sleepInterval"),
            *("securityContext", "enableHostNetwork", "migStrategy"),
        )
    },
    ("nfd",): (
        "of the Node Feature Discovery of their release: not taken over: install it by its own "
        "chart if anybody needs its labels"
    ),
    ("mps", "enableHostPID"): _OF_MPS,
    ("mps", "enableHostNetwork"): _OF_MPS,
}
_FALLBACKS: Final = ("named", "single")
"""What their chart falls back to."""


def settings(workload: Workload, result: Migration) -> Iterator[tuple[str, Setting]]:
    """Yield our settings, and account for the other values; raise ``ConfigError``."""
    if (enabled := workload.has("devicePlugin", "enabled")) and enabled.value is False:
        raise dp.ConfigError(f"{enabled.place}: false: their release has no device plugin")
    for path, name in _SETTINGS.items():
        if (one := workload.key(*path)) and one.value != "":
            yield name, one
    for path in _TAKEN:
        workload.key(*path)
    if (nfd := workload.has("nfd", "enabled")) and nfd.value is False:
        workload.key("nfd")
    for path, why in _DROPPED.items():
        workload.drop(why, *path)
    if not workload.key("affinity"):
        result.differs(
            "affinity",
            "their chart runs on nodes only that Node Feature Discovery has labelled; ours runs on "
            "all, and is idle without a GPU",
        )


def files(workload: Workload) -> Files:
    """Return the files of ``config``, and which is for nodes without a label."""
    mapped, name = workload.key("config", "map"), workload.key("config", "name")
    default, strategies = (workload.key("config", key) for key in ("default", "fallbackStrategies"))
    listed: Any = strategies.value if strategies else _FALLBACKS
    if strategies and not isinstance(listed, list):
        raise strategies.wrong("a list of named, single and empty")
    if mapped and mapped.value:
        if name and name.value:
            raise dp.ConfigError(f"{name.place}: their chart refuses it beside config.map")
        texts = mapping(mapped)
    elif file := apart(workload):
        return file
    else:
        texts = named(workload, name) if name and name.value else {}
    return chosen(texts, default, [*map(str, listed)], f"{workload.place}: config.default")


def mapping(given: Setting) -> dict[str, Setting]:
    """Return files that stand in the values; raise ``ConfigError``."""
    if not isinstance(given.value, Mapping):
        raise given.wrong("a mapping of files")
    texts = {str(key): Setting(f"{given.place}.{key}", one) for key, one in given.value.items()}
    for one in texts.values():
        if not isinstance(one.value, str | None):
            raise one.wrong("the text of a file: write |- after the key")
    return {key: replace(one, value=one.value or "") for key, one in texts.items()}


def named(workload: Workload, name: Setting) -> dict[str, Setting]:
    """Return the files of a ConfigMap that values or an object name; raise ``ConfigError``."""
    texts = config_map(workload, str(name.value))
    if not texts:
        raise dp.ConfigError(
            f"{name.place}: the ConfigMap {name.value!r} is not in the values: "
            "add it as a document (kubectl get cm -o yaml), or give an only file with --config"
        )
    return texts
