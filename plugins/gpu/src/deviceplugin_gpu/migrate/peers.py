"""Which of NVIDIA's programs a workload is, and what is said of those that are not migrated."""

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from deviceplugin.kit.migration import Setting, Workload

Form = Literal["container", "chart", "operator"]

_NAME: Final = "k8s-device-plugin"
_PROGRAM: Final = "nvidia-device-plugin"
_PUBLISHERS: Final = ("nvcr.io", "nvidia")
"""Parts of the image's name: others call theirs k8s-device-plugin, too."""
_MANAGER: Final = "config-manager"
_GFD: Final = (
    "GPU feature discovery: not a device plugin; the component gpu-labels has the GPU plugin write "
    "the same labels"
)
_MPS: Final = (
    "MPS control daemon of NVIDIA: not a device plugin; it is still needed: "
    "plugins/gpu/docs/sharing.md"
)
_DRA: Final = "NVIDIA's DRA driver: not a device plugin; ours is a mode of the GPU plugin: dra"
_VGPU: Final = "their scheduler and their library in pods limit memory and cores: ours has neither"
_OTHERS: Final = {
    "gpu-feature-discovery": _GFD,
    "mps-control-daemon": _MPS,
    "k8s-dra-driver-gpu": _DRA,
    "dra-driver-nvidia-gpu": _DRA,
    "nvidia-gpu-device-plugin": (
        "Google's plugin for GKE: its device ids are nvidia0 and so on, and its pods get the "
        "driver from /home/kubernetes/bin/nvidia: label the node pool "
        "gke-no-default-nvidia-gpu-device-plugin=true, drain it, and deploy ours with that "
        "driver-root and cdi-cri"
    ),
    "aws-virtual-gpu-device-plugin": (
        "Amazon's vGPU plugin: it offers k8s.amazonaws.com/vgpu by MPS; ours offers "
        "nvidia.com/gpu: share by sharing.mps, and change what pods ask for"
    ),
    "kuartis-virtual-gpu-device-plugin": (
        "a fork of Amazon's vGPU plugin: it offers k8s.kuartis.com/vgpu by MPS; ours offers "
        "nvidia.com/gpu: share by sharing.mps, and change what pods ask for"
    ),
    "hami": f"Project-HAMi: nvidia.com/gpumem and nvidia.com/gpucores are its own, {_VGPU}",
    "k8s-vdevice": f"Project-HAMi, formerly 4paradigm's vGPU: {_VGPU}",
    "k8s-vgpu": f"Project-HAMi, formerly 4paradigm's vGPU: {_VGPU}",
    "volcano-vgpu-device-plugin": f"Volcano's vGPU plugin: volcano.sh/vgpu-* are its own, {_VGPU}",
    "volcano-device-plugin": (
        "Volcano's plugin: volcano.sh/gpu-memory and volcano.sh/gpu-number need its scheduler; "
        "ours offers nvidia.com/gpu, and shares by sharing.timeSlicing"
    ),
    "k8s-gpushare-plugin": (
        "Alibaba's gpushare: aliyun.com/gpu-mem needs its scheduler; ours offers nvidia.com/gpu, "
        "and shares by sharing.timeSlicing, without a memory limit"
    ),
    "gpu-manager": (
        f"Tencent's GPU manager: tencent.com/vcuda-core and vcuda-memory are its own, {_VGPU}"
    ),
    "metagpu-device-plugin": (
        f"cnvrg's metagpu: cnvrg.io/metagpu counts parts of a GPU, {_VGPU}; share by "
        "sharing.timeSlicing"
    ),
    "kubevirt-gpu-device-plugin": (
        "NVIDIA's plugin for KubeVirt: it offers GPUs of vfio-pci and vGPUs by model to virtual "
        "machines; keep it, or use the recipes for VFIO and mediated devices of the generic plugin"
    ),
    "nvidia-sandbox-device-plugin": (
        "NVIDIA's plugin for Kata containers: it offers GPUs of vfio-pci; keep it, or use the "
        "recipe for VFIO of the generic plugin"
    ),
}
"""Names of images and programs that are not NVIDIA's plugin, and what to do with them."""
_FORKS: Final = {
    "nebuly-ai": f"nos, a fork that partitions by MPS: its nvidia.com/gpu-*gb are its own, {_VGPU}",
    "4pdosc": _OTHERS["k8s-vgpu"],
    "deepomatic": "a fork that shares by a flag: use the GPU plugin with sharing.timeSlicing",
}
"""Publishers of forks that have the name of NVIDIA's plugin."""
_JETSON: Final = (
    "a plugin for Jetson: the GPU plugin serves Tegra systems by itself, as one device of "
    "nvidia.com/gpu: check what pods ask for"
)
_OBJECTS: Final = {
    "NVIDIADriver": "the driver stays with NVIDIA's operator: give its ClusterPolicy",
    "GPUCluster": _DRA,
}
_SETTINGS: Final = frozenset(
    {
        *("compatWithCPUManager", "migStrategy", "failOnInitError", "deviceListStrategy"),
        *("deviceIDStrategy", "nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled", "gdsEnabled"),
        *("mofedEnabled", "deviceDiscoveryStrategy", "gfd"),
    }
)
"""Helm values that show whose they are, where no image is given."""
_CONFIG: Final = frozenset({"map", "name", "default", "fallbackStrategies"})
_FILE: Final = frozenset({"version", "flags", "resources", "sharing", "imex"})
"""Keys of a configuration file of NVIDIA's plugin."""
_OPERATORS: Final = frozenset(
    {
        *("toolkit", "dcgmExporter", "migManager", "sandboxWorkloads", "nodeStatusExporter"),
        *("vgpuManager", "vgpuDeviceManager", "vfioManager", "ccManager", "gdrcopy", "mig"),
        *("kataManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "dcgm"),
    }
)
"""Helm values of the operator alone."""
_OF_OPERATOR: Final = frozenset({"config", "version", "repository", "image", "env", "args", "mps"})
"""Keys of ``devicePlugin`` in values of the operator; that of NVIDIA's chart has none of them."""
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
        others = [path for path, one in siblings(workload) if not is_manager(one)]
        # The whole document, unless it may have the plugin as well.
        path = workload.root if len(others) > 1 else workload.root[:1]
        workload.account.drop(path, why)
        return None
    if workload.kind:
        is_policy = workload.kind == "ClusterPolicy" and _is_of_group(workload)
        return "operator" if is_policy else None
    if workload.values is not None:
        return _form_of_values(workload.image, workload.values)
    return "container" if _is_nvidias(workload) and _started(workload) == _PROGRAM else None


def _reason(workload: Workload) -> str:
    """Return what is said of a workload that is known and is not migrated."""
    if workload.kind:
        return _OBJECTS.get(workload.kind, "") if _is_of_group(workload) else ""
    for name in (workload.name, _started(workload)) if workload.image else ():
        if name in _OTHERS and (name == workload.name or _is_nvidias(workload)):
            return _OTHERS[name]
    if "jetson" in workload.name and "device-plugin" in workload.name:
        return _JETSON
    parts = workload.image.split("/")
    forks = [why for fork, why in _FORKS.items() if fork in parts and workload.name == _NAME]
    if forks:
        return forks[0]
    values = workload.values or {}
    if "version" in values and {*values} <= _FILE:
        return "a configuration file: give it with --config beside the manifest or the values"
    resources = values.get("resources")
    return _DRA if _has(resources, ("gpus", "computeDomains")) else ""


def _is_of_group(workload: Workload) -> bool:
    """Return whether an object is of NVIDIA's API: Kyverno has a ClusterPolicy, too."""
    return str((workload.values or {}).get("apiVersion")).startswith("nvidia.com/")


def _has(value: Any, keys: Iterable[str]) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in keys)


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


def _form_of_values(image: str, values: Mapping[str, Any]) -> Form | None:
    keys, parts = {*values}, image.split("/")
    if not image and (keys & _OPERATORS or _has(values.get("devicePlugin"), _OF_OPERATOR)):
        return "operator"
    if image and parts[-1] != _NAME:
        return None
    if image and any(one in parts for one in _PUBLISHERS):
        return "chart"
    return "chart" if keys & _SETTINGS or _has_config(values) or _has_cdi(values) else None


def _has_config(values: Mapping[str, Any]) -> bool:
    config = values.get("config")
    return isinstance(config, Mapping) and bool(config) and {*config} <= _CONFIG


def _has_cdi(values: Mapping[str, Any]) -> bool:
    return _has(values.get("cdi"), ("nvidiaHookPath", "featureFlags"))


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
