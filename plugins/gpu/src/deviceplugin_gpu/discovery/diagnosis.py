"""Why there are no GPUs, and what to do about it."""

from collections.abc import Iterator
from pathlib import Path

from deviceplugin_gpu.host import pci_bus
from deviceplugin_gpu.host.roots import Roots
from deviceplugin_gpu.nvml.api import VERSION_MISMATCH, LibraryMissingError, NvmlError
from deviceplugin_gpu.nvml.library import MISSING, UPGRADED, Library


def explain(roots: Roots, library: Library, error: NvmlError | None) -> Iterator[str]:
    """Yield what was tried, what exists, and finally what to do, a line each."""
    if error is not None:
        yield f"NVML: {error}" if not isinstance(error, LibraryMissingError) else "NVML: no library"
    yield from _attempts(library)
    nodes = sorted(path.name for path in _listed(roots.dev) if path.name.startswith("nvidia"))
    yield f"device files: {', '.join(nodes) or f'no {roots.dev}/nvidia*'}"
    modules = _modules(roots.proc)
    yield f"kernel modules: {', '.join(modules) or 'none that begins with nvidia'}"
    cards = list(pci_bus.cards(roots.sys))
    yield f"NVIDIA GPUs on the PCI bus: {', '.join(cards) or 'none'}"
    yield f"to do: {_advice(error, nodes, modules, cards)}"


def _attempts(library: Library) -> Iterator[str]:
    missing = [Path(one.place).parent for one in library.attempts if one.outcome == MISSING]
    if missing:
        folders = ",".join(str(path.relative_to(library.root)) for path in missing)
        yield f"library: not in {library.root}/{{{folders}}}"
    for attempt in library.attempts:
        if attempt.outcome != MISSING:
            place = f"{attempt.place}: " if attempt.place not in attempt.outcome else ""
            yield f"library: {place}{attempt.outcome or 'loaded'}"


def _advice(error: NvmlError | None, nodes: list[str], modules: list[str], cards: list[str]) -> str:
    if not cards and not modules:
        return "this node seems to have no GPU: set fail-on-init-error to false if that is intended"
    if not modules:
        return "install the NVIDIA driver on the node, or load its modules: modprobe nvidia"
    if isinstance(error, LibraryMissingError):
        return (
            "the driver is loaded, but its library is not visible here: run the plugin with "
            "runtimeClassName nvidia, or mount the driver's root and name it with "
            "--driver-root-ctr-path; delete a pod that is older than the node's driver"
        )
    if error is not None and error.code == VERSION_MISMATCH:
        return UPGRADED
    if not nodes:
        return "create the device files: run nvidia-modprobe -c 0 -u, or nvidia-smi once"
    return "see the kernel's log for lines with NVRM: dmesg | grep NVRM"


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _modules(proc: Path) -> list[str]:
    try:
        lines = (proc / "modules").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return sorted(name for line in lines if (name := line.split(" ")[0]).startswith("nvidia"))
