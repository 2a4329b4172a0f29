"""What goes with NVIDIA's release, and who needs it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deviceplugin.kit.migration import Migration, Workload

MPS_ROOT: Final = "/run/nvidia/mps"
_SETTERS: Final = {
    "feature.node.kubernetes.io/": "Node Feature Discovery",
    "nvidia.com/gpu.deploy.": "NVIDIA's operator",
    "nvidia.com/gpu.present": "Node Feature Discovery, NVIDIA's operator or by hand",
    "nvidia.com/": "GPU feature discovery, or the component gpu-labels",
}
"""Who sets labels of nodes, by the first of these that fits."""


def note(workload: Workload, result: Migration) -> None:
    """Say what goes with a release of NVIDIA's chart, and which labels our own pods need."""
    gfd = _is_on(workload, "gfd", default=False)
    if gfd:
        result.components.append("gpu-labels")
        result.removed.append(
            "GPU feature discovery, and with it the labels nvidia.com/gpu.product and the like, by "
            "which pods select nodes: the component gpu-labels has our plugin write the same"
        )
    if _is_on(workload, "nfd", default=gfd):
        result.removed.append(
            "Node Feature Discovery of their release, without which nobody sets those labels and "
            "feature.node.kubernetes.io/*: install it by its own chart before, if anybody selects "
            "by them"
        )
    for key, setter in _selected(workload):
        result.removed.append(
            f"the label {key}, if what sets it goes ({setter}): ours is kept to nodes with it, by "
            "the selector that is taken over"
        )


def _is_on(workload: Workload, name: str, *, default: bool) -> bool:
    found = workload.has(name, "enabled") if workload.values is not None else None
    return found.value is True if found else default


def _selected(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield labels that the pod's selectors name and that a program sets, and which."""
    pod = workload.root if workload.values is not None else workload.root[:-2]
    selector, affinity = (workload.account.get((*pod, key)) for key in ("nodeSelector", "affinity"))
    for key in dict.fromkeys((*_keys(selector), *_expressions(affinity))):
        for prefix, setter in _SETTERS.items():
            if key.startswith(prefix):
                yield key, setter
                break


def _keys(selector: Any) -> list[str]:
    return [str(key) for key in selector] if isinstance(selector, Mapping) else []


def _expressions(part: Any) -> Iterator[str]:
    """Yield the keys of all ``matchExpressions`` in an affinity."""
    if isinstance(part, list):
        for one in part:
            yield from _expressions(one)
    elif isinstance(part, Mapping):
        if isinstance(part.get("key"), str):
            yield part["key"]
        for one in part.values():
            yield from _expressions(one)


def add_mps(workload: Workload, path: str, result: Migration) -> None:
    """Add what sharing by MPS needs; ``path`` is their directory on the host."""
    result.components.append("gpu-mps")
    result.variables["DP_MPS_ROOT"] = MPS_ROOT  # which the component sets too
    if path != MPS_ROOT:
        result.differs("mps-root", f"{path} becomes {MPS_ROOT}, which the component gpu-mps mounts")
    ours = "the component gpu-mps runs ours: plugins/gpu/docs/mps.md"
    if result.stop or workload.values is not None:
        how = "is stopped with their plugin" if result.stop else "is removed with their release"
        result.removed.append(
            f"the MPS control daemon, which {how}, with the CUDA contexts of its clients; {ours}"
        )
    else:
        result.differs("MPS control daemon", f"delete their DaemonSet of it, for {ours}")
