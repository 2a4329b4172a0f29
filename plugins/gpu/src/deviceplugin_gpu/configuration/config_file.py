"""The configuration file: version v1, as the reference plugin has it, and the keys of settings."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from deviceplugin.kit.configuration import InvalidError, Place

VERSION: Final = "v1"
_TOP: Final = ("version", "flags", "resources", "sharing", "imex")
_FLAGS: Final = {
    "migStrategy": "mig-strategy",
    "failOnInitError": "fail-on-init-error",
    "nvidiaDriverRoot": "driver-root",
    "nvidiaDevRoot": "dev-root",
    "gdrcopyEnabled": "gdrcopy-enabled",
    "gdsEnabled": "gds-enabled",
    "mofedEnabled": "mofed-enabled",
    "deviceDiscoveryStrategy": "device-discovery-strategy",
    "mpsRoot": "mps-root",
}
_PLUGIN_FLAGS: Final = {
    "passDeviceSpecs": "pass-device-specs",
    "deviceListStrategy": "device-list-strategy",
    "deviceIDStrategy": "device-id-strategy",
    "sharedDevicesAllocationPolicy": "shared-devices-allocation-policy",
    "cdiAnnotationPrefix": "cdi-annotation-prefix",
    "nvidiaCTKPath": "nvidia-cdi-hook-path",
    "containerDriverRoot": "driver-root-ctr-path",
}
_IMEX: Final = {"channelIDs": "imex-channel-ids", "required": "imex-required"}
_OTHERS: Final = {
    "flags": ("useNodeFeatureAPI",),
    "flags.gfd": ("oneshot", "noTimestamp", "outputFile", "sleepInterval", "machineTypeFile"),
}
"""Keys for gpu-feature-discovery, which reads the same file. They are accepted and ignored."""


def read(root: Place, known: Collection[str]) -> Mapping[str, object]:
    """Return the settings in a file, by the keys of settings. Faults are collected.

    The file may have keys of settings, listed in ``known``, beside those of version v1.
    """
    top = root.keys((*_TOP, *known))
    if "version" in top:
        _check_version(top["version"])
    found = {key: top[key] for key in top if key in known and key not in _TOP}
    flags = _within(top, "flags", (*_FLAGS, *_OTHERS["flags"], "plugin", "gfd"))
    _collect(flags, _FLAGS, found)
    _collect(_within(flags, "plugin", _PLUGIN_FLAGS), _PLUGIN_FLAGS, found)
    _collect(_within(top, "imex", _IMEX), _IMEX, found)
    _within(flags, "gfd", _OTHERS["flags.gfd"])
    for key in ("resources", "sharing"):
        if place := _said(top, key):
            found[key] = place
    return found


def _check_version(place: Place) -> None:
    if place.kind != "nothing" and (place.kind != "text" or place.raw not in {VERSION, ""}):
        place.fault(f"{place.shown} is not known: write {VERSION}")


def _said(given: Mapping[str, Place], key: str) -> Place | None:
    """Return the place at ``key``; None if it is absent or empty."""
    return given[key] if key in given and given[key].kind != "nothing" else None


def _within(given: Mapping[str, Place], key: str, known: Collection[str]) -> Mapping[str, Place]:
    """Return the places of the mapping at ``key``, which may be absent or empty."""
    if place := _said(given, key):
        with suppress(InvalidError):
            return place.keys(known)
    return {}


def _collect(given: Mapping[str, Place], keys: Mapping[str, str], found: dict[str, Place]) -> None:
    for key, name in keys.items():
        if place := _said(given, key):
            if name in found:
                place.fault(f"given twice, also as {name}")
            found[name] = place
