"""How pods get GPUs from the node's container runtime, by its configuration."""

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from deviceplugin.checks import Finding, Node, RuntimeConfig, ok, unknown, warning
from deviceplugin_gpu.configuration.setting_kinds import STRATEGIES
from deviceplugin_gpu.container import nvidia_ctk

BY_VARIABLE: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
"""The setting of NVIDIA's runtime by which any container gets the GPUs that it names itself."""
BY_MOUNTS: Final = "accept-nvidia-visible-devices-as-volume-mounts"
FILE: Final = "etc/nvidia-container-runtime/config.toml"
"""Where NVIDIA's runtime has its settings, unless they are beside its program."""
_NVIDIA: Final = "nvidia"
_BESIDE: Final = ".config/nvidia-container-runtime/config.toml"
"""Where NVIDIA's toolkit container installs the settings, below the folder of the program."""


@dataclass(frozen=True, slots=True)
class Requests:
    """How containers that are not privileged may ask NVIDIA's runtime for GPUs."""

    file: Path
    by_variable: bool = True
    """Whether by a variable, which any image and any pod can set. That is the default."""
    by_mounts: bool | None = None
    """Whether by mounts of /dev/null; None if there is no file."""
    fault: str = ""
    """Why the file does not say it, although there is one."""
    mode: str = "auto"
    """How the runtime adds devices: auto, legacy, csv, cdi or jit-cdi."""
    program: str = ""
    """The program of the runtime."""
    systemd: bool | None = None
    """Whether systemd manages the control groups of its containers."""


def nvidias(config: RuntimeConfig) -> list[str]:
    """Return the names of NVIDIA's runtimes. A pod chooses one by its runtimeClassName."""
    return sorted(name for name, program in config.programs.items() if _NVIDIA in program)


def is_default(config: RuntimeConfig) -> bool:
    """Return whether one of them is used for pods without a runtimeClassName."""
    return config.default in nvidias(config)


def requests_to(node: Node, config: RuntimeConfig) -> Requests:
    """Return what the settings of NVIDIA's default runtime, or else of its first one, accept."""
    used = config.default if is_default(config) else nvidias(config)[0]
    program = config.programs[used]
    beside = node.at(Path(program).parent / _BESIDE)
    file = beside if os.path.exists(beside) else node.at(FILE)  # noqa: PTH110 - never raises
    made = Requests(file, program=program, systemd=config.systemd.get(used))
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return made
    except (OSError, ValueError) as error:
        return replace(made, fault=f"cannot be read: {str(error).splitlines()[0]}")
    given = [document.get(BY_VARIABLE, True), document.get(BY_MOUNTS, False)]
    for name, value in zip((BY_VARIABLE, BY_MOUNTS), given, strict=True):
        if not isinstance(value, bool):
            return replace(made, fault=f"{name} = {value!r} is neither true nor false")
    inner: Any = document.get("nvidia-container-runtime")
    mode = str(inner.get("mode", "auto")) if isinstance(inner, dict) else "auto"
    return replace(made, by_variable=given[0], by_mounts=given[1], mode=mode)


_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
_WHAT: Final = "GPUs of other tenants"
_SYS_ADMIN: Final = 1 << 21
"""The capability by which NVIDIA's runtime recognizes a privileged container."""
_MEANS: Final = (
    f"an image or a pod with {_VARIABLE}=all gets every GPU of the node, whatever the plugin's "
    "strategy is. Ignore this if all pods of the node belong to one tenant."
)
_SEE: Final = "See 'Several tenants on one node' in the README of the plugin."


def look_at_tenants(
    node: Node, config: RuntimeConfig, requests: Requests | None
) -> Iterator[Finding]:
    """Yield whether NVIDIA's runtime gives GPUs to whoever names them."""
    if requests is None:
        if not config.is_known and _got_them_so(node):
            yield warning(
                _WHAT,
                f"this container got GPUs by {_VARIABLE}, and is not privileged",
                means=f"with this container runtime, {_MEANS}",
                do=f"set {BY_VARIABLE} = false in the configuration of NVIDIA's runtime. {_SEE}",
            )
    elif requests.fault:
        do = "correct it; NVIDIA's runtime may not start with it. If it is not permitted, be root."
        yield unknown(requests.file, requests.fault, do)
    elif not requests.by_variable:
        yield ok(_WHAT, f"only privileged containers get them by {_VARIABLE} ({requests.file})")
    elif is_default(config):
        yield warning(
            _WHAT,
            f"any container gets them by {_VARIABLE}: NVIDIA's runtime is the default, and "
            f"{BY_VARIABLE} is not false",
            means=_MEANS,
            do=f"set {BY_VARIABLE} = false in /{requests.file.relative_to(node.root)}, and add the "
            f"components gpu-cdi and gpu-privileged to the plugin. {_SEE}",
        )
    else:
        names = ", ".join(nvidias(config))
        yield ok(_WHAT, f"a pod gets them by {_VARIABLE} if it has the runtimeClassName {names}")


def _got_them_so(node: Node) -> bool:
    """Return whether this container has GPUs by the variable, as the plugin's own pod may."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", node.peek("proc/self/status"), re.MULTILINE)
    is_privileged = found is None or bool(int(found[1], 16) & _SYS_ADMIN)
    asks = os.environ.get(_VARIABLE, "") not in {"", "void", "none"}
    return asks and not is_privileged and node.exists("dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The facts about a node that decide it. None means unknown."""

    nvidia_runtime: bool | None = None
    """Whether NVIDIA's container runtime creates the pod's containers."""
    cdi: bool | None = None
    """Whether the container runtime supports CDI, and has it enabled."""
    toolkit: bool = False
    """Whether there is a specification of NVIDIA's toolkit, and it is up to date."""
    libraries: bool | None = False
    """Whether the plugin sees the driver's libraries below the driver's root; None if its GPU is
    integrated, for which the plugin has no specification."""
    by_variable: bool = True
    """Whether NVIDIA's runtime takes the variable of containers that are not privileged."""
    by_mounts: bool | None = None
    """Whether it takes mounts."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Whether a CUDA pod would run, and by what means, or why not."""

    runs: bool | None
    why: str
    do: str = ""
    """What to do if it does not run, or if that is unknown."""


_NOT_NVIDIAS: Final = Prospect(
    runs=False,
    why="nothing reads NVIDIA_VISIBLE_DEVICES: the container runtime is not NVIDIA's",
    do="use cdi-cri; or install nvidia-container-toolkit, and make its runtime the default or "
    "name it as the runtimeClassName of pods.",
)
_MAYBE_NVIDIAS: Final = Prospect(
    runs=None,
    why="it runs if the container runtime is NVIDIA's",
    do="run the doctor on the node, with its root: --root.",
)
_NOT_PRIVILEGED: Final = Prospect(
    runs=False,
    why="NVIDIA's runtime ignores NVIDIA_VISIBLE_DEVICES of containers that are not privileged",
    do="use cdi-cri or volume-mounts, as is right where several tenants share a node.",
)
_NO_CDI: Final = Prospect(
    runs=False,
    why="the container runtime has CDI disabled, or is too old for it",
    do="set enable_cdi = true in the configuration of containerd 1.7, or update it to 2.0.",
)
_NO_DRIVER: Final = Prospect(
    runs=False,
    why="nothing provides the driver's libraries",
    do="mount the driver's root for the plugin (deployments/components/gpu-cdi), or "
    f"{nvidia_ctk.GENERATE}.",
)
_INTEGRATED: Final = replace(_NO_DRIVER, do=f"{nvidia_ctk.GENERATE}.")


def table(node: NodeKind) -> dict[str, Prospect]:
    """Return the outcome of each strategy on ``node``."""
    return {strategy: _of(strategy, node) for strategy in STRATEGIES}


def _of(strategy: str, node: NodeKind) -> Prospect:
    return _by_cdi(node) if strategy.startswith("cdi-") else _by_runtime(strategy, node)


def _by_runtime(strategy: str, node: NodeKind) -> Prospect:
    if node.nvidia_runtime is None:
        return _MAYBE_NVIDIAS
    if not node.nvidia_runtime:
        return _NOT_NVIDIAS
    if strategy == "volume-mounts" and not node.by_mounts:
        need = f"{BY_MOUNTS} = true"
        if node.by_mounts is None:
            return Prospect(runs=True, why=f"by NVIDIA's runtime, if its configuration has {need}")
        why = "NVIDIA's runtime ignores mounts that ask for GPUs"
        return Prospect(runs=False, why=why, do=f"set {need} in its configuration.")
    if strategy == "envvar" and not node.by_variable:
        return _NOT_PRIVILEGED
    return Prospect(runs=True, why="by NVIDIA's runtime")


def _by_cdi(node: NodeKind) -> Prospect:
    if node.cdi is False:
        return _NO_CDI
    if not (node.toolkit or node.libraries):
        return _INTEGRATED if node.libraries is None else _NO_DRIVER
    whose = "NVIDIA's toolkit's" if node.toolkit else "the plugin's"
    if node.cdi is None:
        do = "containerd 2 and CRI-O have it; containerd 1.7 with enable_cdi = true."
        return Prospect(None, f"by {whose} specification, if the container runtime has CDI", do)
    return Prospect(runs=True, why=f"by {whose} specification")
