"""The configuration file: version v1, as the reference plugin has it, and the keys of settings."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_gpu.configuration.values import Place, refuse

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
"""Keys for gpu-feature-discovery, which reads the same file; taken and not looked at."""


def read(path: Path, known: Collection[str]) -> Mapping[str, Any]:
    """Return the settings in the file at ``path``, by the keys of settings.

    The file may have keys of settings, which are the ``known`` ones, beside those of version v1.

    Raises:
        ConfigError: The file cannot be read, is of another version, or has keys that v1 has not.
    """
    given = dp.Settings.read_file(path)
    problems: list[str] = []
    top = Place(given, "", problems)
    version = given.get("version", VERSION)
    if version not in (VERSION, "", None):
        problems.append(f"version: {version!r} is not known: write {VERSION}")
    top.only((*_TOP, *known))
    found = {key: value for key, value in given.items() if key in known and key not in _TOP}
    flags = top.inner("flags")
    places: tuple[tuple[Place, Mapping[str, str], tuple[str, ...]], ...] = (
        (flags, _FLAGS, (*_OTHERS["flags"], "plugin", "gfd")),
        (flags.inner("plugin"), _PLUGIN_FLAGS, ()),
        (top.inner("imex"), _IMEX, ()),
        (flags.inner("gfd"), {}, _OTHERS["flags.gfd"]),
    )
    for place, keys, others in places:
        place.only((*keys, *others))
        _collect(place, keys, found)
    for key in ("resources", "sharing"):
        if given.get(key) is not None:
            found[key] = given[key]
    refuse([f"{path}: {problem}" for problem in problems])
    return found


def _collect(place: Place, keys: Mapping[str, str], found: dict[str, Any]) -> None:
    for key, name in keys.items():
        value = place.take(key, lambda value: value, None)
        if value is not None and name in found:
            place.problems.append(f"{place.at(key)}given twice, also as {name}")
        elif value is not None:
            found[name] = value
