"""Flags and variables of NVIDIA's plugin, and our settings."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any, Final

from deviceplugin.kit.migration import Migration, Setting, Workload, flags
from deviceplugin_gpu.configuration.settings import GpuSettings, flags_of

_CLASSIC: Final = {
    field.name.replace("_", "-"): field
    for field in fields(GpuSettings)
    if field.metadata.get("env")
}
"""The settings that their plugin has too."""
_SWITCHES: Final = frozenset(name for name, field in _CLASSIC.items() if field.type is bool)
_OF_CONTAINER: Final = ("driver-root-ctr-path", "kubelet-socket")
"""Settings about their container, which have no meaning in ours."""
FILE: Final = "config-file"
_KNOWN: Final = {
    **{
        flag.removeprefix("--"): "" if name in _OF_CONTAINER else name
        for name, field in _CLASSIC.items()
        for flag in flags_of(field)
    },
    FILE: FILE,
}
"""Their flags, and our settings. Variables are the same in capitals."""
_HEALTH: Final = {
    "DP_DISABLE_HEALTHCHECKS": "disable-healthchecks",
    "DP_ENABLE_HEALTHCHECKS": "enable-healthchecks",
}
_RUNTIMES: Final = (
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_MIG_MONITOR_DEVICES"),
    *("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_REQUIRE_CUDA", "CDI_ENABLED", "HOST_ROOT"),
)
"""Variables by which a container gets the driver: ours has its own."""
_LISTS: Final = frozenset({"imex-channel-ids", "cdi-feature-flags", "cdi-disable-hooks"})


def of_container(workload: Workload, result: Migration) -> Iterator[tuple[str, Setting]]:
    """Yield our settings, and FILE, in the order in which later ones win."""
    names = {name.upper().replace("-", "_"): name for name in _KNOWN}
    set_here = ((name, workload.variable(key)) for key, name in names.items())
    variables = [(name, one) for name, one in set_here if one]
    for name, one in (*variables, *flags(workload, _KNOWN, _SWITCHES)):
        if not one.value:
            continue  # charts set variables to nothing
        if _KNOWN[name]:
            yield _KNOWN[name], one
        else:
            result.differs(f"--{name}", f"{one.value} is about their container: not taken over")
    for key, name in _HEALTH.items():
        if found := workload.variable(key):
            yield name, found
    for key in _RUNTIMES:
        workload.variable(key)


def written(name: str, given: Setting) -> Any:
    """Return a setting as it stands in a file; raise ``ConfigError``."""
    if name in _SWITCHES and not isinstance(given.value, bool):
        text = str(given.value).lower()
        if text not in {"1", "t", "true", "0", "f", "false", ""}:
            raise given.wrong("true or false")
        return text in {"1", "t", "true"}
    if name in _LISTS:
        return [part.strip() for part in str(given.value).split(",") if part.strip()]
    if name.endswith("-root") and not PurePosixPath(str(given.value or "/")).is_absolute():
        raise given.wrong("an absolute path")
    return given.value
