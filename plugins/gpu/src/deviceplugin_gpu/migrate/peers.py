"""Which of NVIDIA's programs a workload is, and what is said of those that are not migrated."""

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from deviceplugin.kit.migration import Setting, Workload
from deviceplugin_gpu.migrate import likes
from deviceplugin_gpu.migrate.likes import has

Form = Literal["container", "chart", "operator"]

_NAME: Final = "k8s-device-plugin"
_PROGRAM: Final = "nvidia-device-plugin"
_PUBLISHERS: Final = ("nvcr.io", "nvidia")
"""Parts of the image's name: others call theirs k8s-device-plugin, too."""
_MANAGER: Final = "config-manager"
_SETTINGS: Final = frozenset(
    {
        *("compatWithCPUManager", "migStrategy", "failOnInitError", "deviceListStrategy"),
        *("deviceIDStrategy", "nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled", "gdsEnabled"),
        *("mofedEnabled", "deviceDiscoveryStrategy", "gfd"),
    }
)
"""Helm values that show whose they are, where no image is given."""
_CONFIG: Final = frozenset({"map", "name", "default", "fallbackStrategies"})
_OPERATORS: Final = frozenset(
    {
        *("toolkit", "dcgmExporter", "migManager", "sandboxWorkloads", "nodeStatusExporter"),
        *("vgpuManager", "vgpuDeviceManager", "vfioManager", "ccManager", "gdrcopy", "mig"),
        *("kataManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "dcgm"),
    }
)
"""Helm values of the operator alone."""
_OPERATORS_CONFIG: Final = frozenset({"create", "name", "default", "data"})
_SAYS_NVIDIA: Final = re.compile("migStrategy|timeSlicing|^sharing:|^version: v1", re.MULTILINE)
"""What is in a configuration file of NVIDIA's plugin."""
ENTRY_POINT: Final = "/bin/entrypoint.sh"
"""Waits for the operator's driver, and starts the plugin with its root and what it has."""
_OLD_ENTRY_POINT: Final = re.compile(
    r"\[\[ -f /run/nvidia/validations/.*\bexec nvidia-device-plugin;?\s*", re.DOTALL
)
_SIMPLE: Final = re.compile(r"[-\w./=:,@ \"']+", re.ASCII)


def form_of(workload: Workload) -> Form | None:
    """Return in which form this is NVIDIA's plugin; None if it is not.

    What is known and is not migrated is dropped, with what takes its place.
    """
    if why := _reason(workload):
        is_part = workload.values is not None or _may_have_plugin(workload)
        workload.account.drop(workload.root if is_part else workload.root[:1], why)
        return None
    if workload.kind:
        is_policy = workload.kind == "ClusterPolicy" and _is_of_group(workload)
        return "operator" if is_policy else None
    if workload.values is not None:
        return _form_of_values(workload, workload.values)
    return "container" if _is_nvidias(workload) and _started(workload) == _PROGRAM else None


def _may_have_plugin(workload: Workload) -> bool:
    """Return whether another container of the pod may be NVIDIA's plugin."""
    return any(
        f"/{_NAME}" in str(one.get("image"))
        for path, one in siblings(workload)
        if path[-2] == "containers" and path != workload.root and not is_manager(one)
    )


def _reason(workload: Workload) -> str:
    """Return what is said of a workload that is known and is not migrated."""
    if workload.kind:
        return likes.OBJECTS.get(workload.kind, "") if _is_of_group(workload) else ""
    for name in (workload.name, _started(workload)) if workload.image else ():
        if name in likes.OTHERS and (name == workload.name or _is_nvidias(workload)):
            return likes.OTHERS[name]
    if why := likes.of_image(workload.image, _NAME):
        return why
    return likes.of_values(workload.values or {}, is_whole=len(workload.root) == 1)


def _is_of_group(workload: Workload) -> bool:
    """Return whether an object is of NVIDIA's API: Kyverno has a ClusterPolicy, too."""
    return str((workload.values or {}).get("apiVersion")).startswith("nvidia.com/")


def _is_nvidias(workload: Workload) -> bool:
    """Return whether the image is NVIDIA's, or a mirror of it in a container of its name."""
    if workload.name != _NAME:
        return False
    container = str(workload.account.get((*workload.root, "name")))
    parts = workload.image.split("/")
    return container.startswith("nvidia-") or any(one in parts for one in _PUBLISHERS)


def _started(workload: Workload) -> str:
    """Return the name of the program that the container starts."""
    if workload.values is not None:
        return ""
    if workload.shell:
        return _program_of(_script(workload))
    command = workload.account.get((*workload.root, "command"))
    first = command[0] if isinstance(command, list) and command else _PROGRAM
    return posixpath.basename(str(first))


def _script(workload: Workload) -> str:
    """Return what a shell starts; empty if there is none."""
    words = workload.arguments if workload.shell else ()
    return " ".join(one for one in words if one != "-c").strip()


def _program_of(script: str) -> str:
    if script == ENTRY_POINT or _OLD_ENTRY_POINT.fullmatch(script):
        return _PROGRAM
    words = _words(script)
    # Another script stays the plugin's, so that it is refused with what stands there.
    return posixpath.basename(words[0]) if words else _PROGRAM


def _words(script: str) -> list[str]:
    """Return the words of a single command; none if a shell would do more with it."""
    if not _SIMPLE.fullmatch(script):
        return []
    try:
        words = shlex.split(script)
    except ValueError:
        return []
    return words[1:] if words[:1] == ["exec"] else words


def unwrapped(workload: Workload) -> tuple[Workload, bool]:
    """Return a container without its shell, and whether it is one of the GPU operator.

    What the shell starts stays where it is not known: reading the flags then refuses it.
    """
    script = _script(workload)
    if script == ENTRY_POINT or _OLD_ENTRY_POINT.fullmatch(script):
        if file := workload.files.get(ENTRY_POINT):
            workload.account.take(file.path)
        return replace(workload, shell="", arguments=()), True
    words = _words(script)
    if words and posixpath.basename(words[0]) == _PROGRAM:
        return replace(workload, shell="", arguments=tuple(words[1:])), False
    return workload, False


def _form_of_values(workload: Workload, values: Mapping[str, Any]) -> Form | None:
    keys, image = {*values}, workload.image
    if not image and (keys & _OPERATORS or _is_operators(values.get("devicePlugin"))):
        return "operator"
    if image and workload.name != _NAME:
        return None
    if image and any(one in image.split("/") for one in _PUBLISHERS):
        return "chart"
    has_config = _has_config(values, is_whole=len(workload.root) == 1)
    return "chart" if keys & _SETTINGS or has_config or _has_cdi(values) else None


def _is_operators(plugin: Any) -> bool:
    """Return whether ``devicePlugin`` is the operator's: other charts have such a key, too."""
    if not isinstance(plugin, Mapping):
        return False
    if has(plugin, ("image", "repository")):
        return plugin.get("image") == _NAME or "nvidia" in str(plugin.get("repository"))
    config = plugin.get("config")
    return isinstance(config, Mapping) and bool(config) and {*config} <= _OPERATORS_CONFIG


def _has_config(values: Mapping[str, Any], *, is_whole: bool) -> bool:
    config = values.get("config")
    if not isinstance(config, Mapping) or not config or not {*config} <= _CONFIG:
        return False
    texts = config.get("map")
    of_plugin = isinstance(texts, Mapping) and any(
        _SAYS_NVIDIA.search(str(one)) for one in texts.values()
    )
    return of_plugin or (is_whole and {*values} <= {"config", *_SETTINGS})


def _has_cdi(values: Mapping[str, Any]) -> bool:
    return has(values.get("cdi"), ("nvidiaHookPath", "featureFlags"))


def is_manager(container: Mapping[str, Any]) -> bool:
    """Return whether a container chooses a configuration by the node's label."""
    return [_MANAGER] in (container.get("command"), container.get("args"))


def siblings(workload: Workload) -> list[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    """Return path and content of all containers of the pod, those that run first included."""
    pod, account = workload.root[:-2], workload.account
    lists = [((*pod, key), account.get((*pod, key))) for key in ("containers", "initContainers")]
    return [
        ((*path, index), one)
        for path, found in lists
        for index, one in enumerate(found if isinstance(found, list) else [])
        if isinstance(one, Mapping)
    ]


def config_map(workload: Workload, name: str) -> dict[str, Setting]:
    """Take over a ConfigMap of the input, and return its files; none if it is not there."""
    account, number = workload.account, 0
    while (one := account.get((number,))) is not None:
        data, found = one.get("data"), account.get((number, "metadata", "name"))
        if one.get("kind") == "ConfigMap" and found == name and isinstance(data, Mapping):
            for key in ("apiVersion", "kind", "metadata", "immutable", "data"):
                account.take((number, key))
            place = f"{workload.place.partition(':')[0]}: ConfigMap {name}: data"
            return {str(key): Setting(f"{place}.{key}", str(text)) for key, text in data.items()}
        number += 1
    return {}
