"""Plugins and programs that are not NVIDIA's device plugin, and what to do with them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_GFD: Final = (
    "GPU feature discovery: not a device plugin; the component gpu-labels has the GPU plugin write "
    "the same labels"
)
_MPS: Final = (
    "MPS control daemon of NVIDIA: not a device plugin; the component gpu-mps runs ours instead: "
    "plugins/gpu/docs/mps.md"
)
_DRA: Final = "NVIDIA's DRA driver: not a device plugin; ours is a mode of the GPU plugin: dra"
_VGPU: Final = "their scheduler and their library in pods limit memory and cores: ours has neither"
OTHERS: Final = {
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
    "4pdosc": OTHERS["k8s-vgpu"],
    "deepomatic": "a fork that shares by a flag: use the GPU plugin with sharing.timeSlicing",
}
"""Publishers of forks that have the name of NVIDIA's plugin."""
_JETSON: Final = (
    "a plugin for Jetson: the GPU plugin serves Tegra systems by itself, as one device of "
    "nvidia.com/gpu: check what pods ask for"
)
OBJECTS: Final = {
    "NVIDIADriver": "the driver stays with NVIDIA's operator: give its ClusterPolicy",
    "GPUCluster": _DRA,
}
_FILE: Final = frozenset({"version", "flags", "resources", "sharing", "imex"})
"""Keys of a configuration file of NVIDIA's plugin."""
_HAMIS: Final = ("deviceSplitCount", "deviceMemoryScaling", "disablecorelimit")
_DRAS: Final = ("nvidiaDriverRoot", "gpuResourcesEnabledOverride", "kubeletPlugin")


def of_image(image: str, name: str) -> str:
    """Return what is said of an image that is known and is not NVIDIA's; empty if it is not."""
    forks = [why for fork, why in _FORKS.items() if fork in image.split("/") and name in image]
    if forks:
        return forks[0]
    is_jetson = "jetson" in image and "device-plugin" in image.rpartition("/")[2]
    return _JETSON if is_jetson else ""


def of_values(values: Mapping[str, Any], *, is_whole: bool) -> str:
    """Return what is said of Helm values that are not those of NVIDIA's chart."""
    if is_whole and values.get("version") == "v1" and {*values} <= _FILE:
        return "a configuration file: give it with --config beside the manifest or the values"
    if has(values, _HAMIS) or has(values.get("devicePlugin"), _HAMIS):
        return OTHERS["hami"]
    is_dra = has(values, _DRAS) and has(values.get("resources"), ("gpus", "computeDomains"))
    return _DRA if is_dra else ""


def has(value: Any, keys: Iterable[str]) -> bool:
    """Return whether a value is a mapping with any of these keys."""
    return isinstance(value, Mapping) and any(key in value for key in keys)
