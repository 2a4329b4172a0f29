"""Whether a CUDA pod would run on the node, with each device list strategy."""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin import ConfigError
from deviceplugin.checks import (
    Finding,
    Node,
    RuntimeConfig,
    failure,
    ok,
    runtime_config,
    unknown,
    warning,
)
from deviceplugin_gpu import host
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container.driver_files import CUDA, DriverFiles
from deviceplugin_gpu.container.nvidia_ctk import File, Generated, Toolkit
from deviceplugin_gpu.doctor.container_runtime import (
    NodeKind,
    Prospect,
    is_default,
    look_at_tenants,
    nvidias,
    requests_to,
    table,
)
from deviceplugin_gpu.doctor.daemon_reload import look_at_reload
from deviceplugin_gpu.nvml.library import UPGRADED
from deviceplugin_gpu.snapshot import Gpu

_VERSION: Final = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")
_UUID: Final = re.compile(r"GPU UUID:\s*(\S+)")
_MINOR: Final = re.compile(r"Device Minor:\s*(\d+)")
_NO_INDEX: Final = -1
"""For a GPU of which the driver's files have only the UUID."""
_ROOTS: Final = ("driver-root", "run/nvidia/driver", ".")
"""Where the driver's root can be: mounted for the plugin, in a container, or the node's own."""
_DEVS: Final = ("dev", "driver-root/dev", "run/nvidia/driver/dev")
_EVERYBODY: Final = stat.S_IROTH | stat.S_IWOTH
_STARTS: Final = "the pod starts, and CUDA finds no driver or no device in it."


def is_integrated(node: Node) -> bool:
    """Return whether the GPU is a part of the processor. An IGX may have a discrete one instead."""
    sys = node.at("sys")
    return host.is_tegra(host.Roots(etc=node.at("etc"), sys=sys)) and not host.has_discrete(sys)


def look(node: Node) -> Iterator[Finding]:
    """Yield what a CUDA pod needs besides a GPU, and with which strategy it would run."""
    found = _VERSION.search(node.peek("proc/driver/nvidia/version"))
    is_wsl, integrated = node.exists("dev/dxg"), is_integrated(node)
    if not (found or is_wsl or integrated):  # the hardware checks report what is missing then
        return
    version = "" if found is None or is_wsl else found[0]
    settings, faults = _settings(node)
    yield from faults
    config = runtime_config(node)
    yield from _runtime(config)
    requests = requests_to(node, config) if nvidias(config) else None
    yield from look_at_tenants(node, config, requests)
    fresh = []
    generated = _generated(node)
    for file in generated.files:
        reason = (
            file.of_other_driver(version)
            or _of_other_gpus(node, generated, file)
            or _of_lost_files(node, file, version)
        )
        fresh.append(not reason)
        yield _specification(file, reason)
    root = ""
    if not integrated:  # else the toolkit has lists of files and device nodes
        problems = {one: _files(node, one, version) for one in _ROOTS}
        root = next((one for one, why in problems.items() if not why), "")
        yield _libraries(node, root, version, problems)
        yield from _device_nodes(node, is_wsl=is_wsl)
    kind = NodeKind(
        nvidia_runtime=is_default(config) or (False if config.is_complete else None),
        cdi=config.cdi,
        toolkit=bool(fresh) and all(fresh),
        libraries=None if integrated else bool(root),
        by_variable=requests is None or requests.by_variable,
        by_mounts=requests.by_mounts if requests else None,
    )
    yield from _prospects(kind, config, _chosen(node, settings))
    yield from look_at_reload(node, requests, settings)


def _runtime(config: RuntimeConfig) -> Iterator[Finding]:
    yield from config.findings()
    if not config.is_known:
        return
    cdi = {True: "on", False: "off", None: "on only from containerd 2"}[config.cdi]
    names = ", ".join(nvidias(config))
    nvidia = f"NVIDIA's as {names}" if names else "none of NVIDIA's"
    default = ", which is the default" if is_default(config) else ""
    yield ok("container runtime", f"{nvidia}{default}; CDI is {cdi} ({config.source})")


def _generated(node: Node) -> Generated:
    return Toolkit([node.at("etc/cdi"), node.at("var/run/cdi")]).find()


def _of_other_gpus(node: Node, generated: Generated, file: File) -> str:
    """Return why a specification is not for the node's GPUs; empty if it is."""
    for path in node.matches("proc/driver/nvidia/gpus/*/information"):
        text = path.read_text()
        if uuid := _UUID.search(text):
            minor = _MINOR.search(text)
            nodes = [f"/dev/nvidia{minor[1]}"] if minor else []
            match = generated.match(Gpu(_NO_INDEX, uuid[1]), nodes=nodes)
            if match.stale and match.file == file.path:
                return match.stale
    return ""


def _specification(file: File, reason: str) -> Finding:
    if not reason:
        return ok(file.path, f"has {len(file.devices)} devices of NVIDIA's toolkit")
    return warning(
        file.path,
        f"is out of date: {reason}",
        means="the plugin does not use it; a pod that uses its names may get other devices.",
        do=f"nvidia-ctk cdi generate --output={file.path}, or remove it.",
    )


def _files(node: Node, root: str, version: str) -> str:
    """Return why the driver's files below a root do not do; empty if they do."""
    files = DriverFiles(node.at(root), Path("/"))
    return (files.find(version) if version else files.of_wsl()).problem


def _of_lost_files(node: Node, file: File, version: str) -> str:
    """Return which file of a specification an upgrade of the driver has removed; empty if none."""
    upgraded = (one for one in _ROOTS if _files(node, one, version).endswith(UPGRADED))
    found = (file.gone(DriverFiles(node.at(one), Path("/")).lacks) for one in upgraded)
    return next(filter(None, found), "")


def _libraries(node: Node, root: str, version: str, problems: Mapping[str, str]) -> Finding:
    shown = version or "of Windows"
    means = "the plugin's CDI specification has no driver files: with CDI alone, no GPU is offered."
    if root == ".":
        found = f"{shown} is on the node; a pod of the plugin sees it with the component gpu-cdi"
    elif root:
        found = f"{shown} is below {node.at(root)}"
    elif why := next((one for one in problems.values() if one.endswith(UPGRADED)), ""):
        return warning(CUDA, why.removesuffix(f": {UPGRADED}"), means=means, do=f"{UPGRADED}.")
    else:
        places = ", ".join(str(node.at(one)) for one in _ROOTS)
        do = "mount the driver's root for the plugin: deployments/components/gpu-cdi."
        return warning(CUDA, f"{shown} is not below {places}", means=means, do=do)
    return ok(CUDA, found)


def _device_nodes(node: Node, *, is_wsl: bool) -> Iterator[Finding]:
    if not (is_wsl or any(node.exists(f"{dev}/nvidia-uvm") for dev in _DEVS)):
        yield warning(
            "/dev/nvidia-uvm",
            "does not exist",
            means="CUDA cannot be initialized in any pod.",
            do="modprobe nvidia-uvm and nvidia-modprobe -u -c 0, at each boot.",
        )
    for path in sorted(one for dev in _DEVS for one in node.matches(f"{dev}/nvidia*")):
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) and status.st_mode & _EVERYBODY != _EVERYBODY:
            yield warning(
                path,
                f"has mode {stat.S_IMODE(status.st_mode):04o}",
                means="pods that do not run as root cannot open it.",
                do="load the module nvidia with NVreg_DeviceFileMode=0666.",
            )


def _prospects(
    kind: NodeKind, config: RuntimeConfig, chosen: AbstractSet[str]
) -> Iterator[Finding]:
    """Yield a finding for each outcome, with the strategies that lead to it."""
    found = table(kind)
    groups = defaultdict[Prospect, list[str]](list)
    for strategy, prospect in found.items():
        groups[prospect].append(strategy)
    runs_by_some = any(one.runs is not False for one in found.values())
    for prospect, strategies in groups.items():
        what = f"CUDA pods with {', '.join(strategies)}"
        if prospect.runs:
            yield ok(what, f"would run {prospect.why}")
        elif prospect.runs is None:
            yield unknown(what, prospect.why, prospect.do)
        elif chosen and not chosen & {*strategies}:
            yield ok(what, f"would not run, and are not asked for: {prospect.why}")
        else:
            tell = warning if runs_by_some and not chosen else failure
            yield tell(what, f"would not run: {prospect.why}", means=_STARTS, do=prospect.do)
    if (others := nvidias(config)) and not is_default(config):
        named = table(replace(kind, nvidia_runtime=True))
        runs = [one for one in found if named[one].runs and not found[one].runs]
        text = f"with runtimeClassName {others[0]} would run by {' and '.join(runs) or 'none'}"
        yield ok("CUDA pods", text)


def _settings(node: Node) -> tuple[GpuSettings, Sequence[Finding]]:
    """Return the plugin's settings as far as they are known, and what is wrong with its file."""
    try:
        return node.own_settings(GpuSettings, node.config, os.environ), ()
    except ConfigError as error:
        means = "the plugin exits with status 2, and its pod restarts for ever."
        do = f"gpu-device-plugin --config {node.config} --print-config lists all errors."
        fault = failure(node.config or "settings", str(error).splitlines()[0], means=means, do=do)
        return GpuSettings(), [fault] if "gpu" in node.plugins else ()


def _chosen(node: Node, settings: GpuSettings) -> AbstractSet[str]:
    """Return the plugin's strategies; empty if nothing here says which they are."""
    names = ("DP_DEVICE_LIST_STRATEGY", "DEVICE_LIST_STRATEGY")
    is_known = node.config is not None or any(os.environ.get(name) for name in names)
    return {*settings.device_list_strategy.names} if is_known else set()
