"""akri: a Configuration of devices that udev finds, as an object or in the values of its chart."""

from collections.abc import Mapping
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.configuration import (
    Kind,
    boolean,
    list_of,
    needed,
    of_plain,
    of_text,
    record,
    text,
)
from deviceplugin.kit.migration import Migration, Setting, Workload, checked
from deviceplugin_generic.configuration import entry_lists
from deviceplugin_generic.migrate import udev_rules

_KIND: Final = "Configuration"
_CHART: Final = ("udev", "configuration")
_NETWORK: Final = "finds devices in the network, which no node has: they stay with akri"
_HANDLERS: Final = {
    "onvif": _NETWORK,
    "opcua": _NETWORK,
    "debugEcho": "pretends to find devices: deploy the simulated plugin",
}
_OTHER: Final = "is a discovery of somebody's own, which stays with akri"
_DROPPED: Final = {
    **dict.fromkeys(
        ("brokerSpec", "brokerPodSpec", "brokerPod", "brokerJob"),
        "ours starts no pods for devices: deploy the broker, with the resource in its limits",
    ),
    **dict.fromkeys(
        (
            *("instanceServiceSpec", "configurationServiceSpec", "instanceService"),
            *("configurationService", "createInstanceServices", "createConfigurationService"),
        ),
        "ours makes no Services for devices",
    ),
    "discoveryProperties": "not taken over: ours gives containers what env of an entry says",
}
_DETAILS: Final[Kind[dict[str, Any]]] = record(
    dict,
    {"udevRules": needed(list_of(text(), 1)), "groupRecursive": boolean(), "permissions": text()},
)


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of a Configuration, or of akri's chart; None for anything else.

    Raises:
        ConfigError: It finds devices in a way that ours has not; the message says which.
    """
    if workload.kind:
        group = str((workload.values or {}).get("apiVersion", "")).partition("/")[0]
        if workload.kind != _KIND or group != "akri.sh":
            return None
        workload.key("status")
        return _of_object(workload)
    is_chart = workload.values is not None and _is_on(workload, "udev")
    return _of_chart(workload) if is_chart else None


def _is_on(workload: Workload, handler: str) -> bool:
    inside = (workload.values or {}).get(handler)
    found = inside.get("configuration") if isinstance(inside, Mapping) else None
    return isinstance(found, Mapping) and bool(found.get("enabled"))


def _of_object(workload: Workload) -> Migration | None:
    spec = ("spec",)
    name = workload.key("metadata", "name")
    old = workload.has("spec", "protocol")  # before 0.7
    if old:
        handler = str(next(iter(old.value), "")) if isinstance(old.value, Mapping) else ""
        details = workload.key("spec", "protocol", handler)
    else:
        found = workload.key("spec", "discoveryHandler", "name")
        handler = str(found.value) if found else ""
        details = workload.key("spec", "discoveryHandler", "discoveryDetails")
        workload.drop(
            _DROPPED["discoveryProperties"], "spec", "discoveryHandler", "discoveryProperties"
        )
    if handler != "udev":
        why = _HANDLERS.get(handler, _OTHER)
        workload.account.drop(workload.root, f"the discovery handler {handler} {why}")
        return None
    return _migration(workload, spec, name, details)


def _of_chart(workload: Workload) -> Migration:
    for key in workload.values or {}:
        if key != "udev":
            why = "is akri's own, and not needed by ours"
            workload.drop(_HANDLERS.get(key, why) if _is_on(workload, key) else why, key)
    workload.key(*_CHART, "enabled")
    workload.drop("is akri's own, and not needed by ours", "udev", "discovery")
    name = workload.key(*_CHART, "name")
    details = workload.key(*_CHART, "discoveryDetails")
    return _migration(workload, _CHART, name, details)


def _migration(
    workload: Workload, where: tuple[str, ...], name: Setting | None, details: Setting | None
) -> Migration:
    for key, why in _DROPPED.items():
        workload.drop(why, *where, key)
    called = str(name.value) if name else "akri-udev"
    if details is None:
        raise dp.ConfigError(f"{workload.place}: has no discoveryDetails with udevRules")
    as_text = isinstance(details.value, str)
    root = (of_text if as_text else of_plain)(details.value, details.place)
    given: dict[str, Any] = checked(root, _DETAILS.read)
    if given.get("groupRecursive"):
        raise dp.ConfigError(
            f"{details.place}: groupRecursive: has no counterpart: select the device that the "
            "others hang on, and name their subsystems in nodes"
        )
    selectors = [udev_rules.selector(one, details.place) for one in given["udevRules"]]
    capacity, properties = (workload.key(*where, one) for one in ("capacity", "brokerProperties"))
    shares = {"count": capacity.value} if capacity and capacity.value != 1 else {}
    rights = {"permissions": given.get("permissions") or "rwm"}
    entry = {
        "name": called,
        "groups": [{**shares, "select": one, **rights} for one in selectors],
        **({"env": _escaped(properties)} if properties and properties.value else {}),
    }
    checked(of_plain([entry], workload.place), lambda found: entry_lists.entries(found.items()))
    asks_udev = any("properties" in one for one in selectors)
    return Migration(
        peer="akri",
        plugin="generic",
        configuration={"domain": "akri.sh", "devices": [entry]},
        components=["udev"] if asks_udev else [],
        differences=[
            (
                f"resource names: akri.sh/{called}, as theirs for any device of it; the names of "
                f"single devices, akri.sh/{called}-HASH, are not here"
            ),
            "device ids: others, so drain a node before you replace the agent there",
            (
                "variables: of brokerProperties, and not UDEV_DEVNODE and UDEV_DEVPATH; env: "
                "{UDEV_DEVNODE: '{path}'} sets the first"
            ),
            "Instances: ours makes no objects for devices",
            "attributes and drivers: of a device or of the nearest one above it that has them",
        ],
    )


def _escaped(given: Setting) -> Mapping[str, str]:
    """Return variables whose values are no templates of ours."""
    if not isinstance(given.value, Mapping):
        raise given.wrong("a mapping of variables")
    return {
        str(key): str(one).replace("{", "{{").replace("}", "}}") for key, one in given.value.items()
    }
