"""Whether a CUDA pod would run: a device list strategy on a kind of node."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deviceplugin_gpu.configuration.device_list_strategy import STRATEGIES
from deviceplugin_gpu.host.runtime_config import BY_MOUNTS


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The facts about a node that decide it. None means unknown."""

    nvidia_runtime: bool | None = None
    """Whether NVIDIA's container runtime creates the pod's containers."""
    cdi: bool | None = None
    """Whether the container runtime supports CDI, and has it enabled."""
    toolkit: bool = False
    """Whether there is a specification of NVIDIA's toolkit, and it is up to date."""
    libraries: bool = False
    """Whether the plugin sees the driver's libraries below the driver's root."""
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
    do="mount the driver's root for the plugin (deployments/components/gpu-cdi), or run "
    "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on the node.",
)


def prospect(strategies: Iterable[str], node: NodeKind) -> Prospect:
    """Return the best outcome that any of ``strategies`` has on ``node``."""
    found = [_of(strategy, node) for strategy in strategies]
    for runs in (True, None):
        if best := [one for one in found if one.runs is runs]:
            return best[0]
    return found[-1]


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
        return _NO_DRIVER
    whose = "NVIDIA's toolkit's" if node.toolkit else "the plugin's"
    if node.cdi is None:
        do = "containerd 2 and CRI-O have it; containerd 1.7 with enable_cdi = true."
        return Prospect(None, f"by {whose} specification, if the container runtime has CDI", do)
    return Prospect(runs=True, why=f"by {whose} specification")
