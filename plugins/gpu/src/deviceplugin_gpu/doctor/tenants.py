"""Whether a container can get GPUs on this node that it was not allocated."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin.checks import Finding, Node, ok, unknown, warning
from deviceplugin_gpu.host.runtime_config import BY_VARIABLE, Requests, RuntimeConfig

_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
_WHAT: Final = "GPUs of other tenants"
_SYS_ADMIN: Final = 1 << 21
"""The capability by which NVIDIA's runtime recognizes a privileged container."""
_MEANS: Final = (
    f"an image or a pod with {_VARIABLE}=all gets every GPU of the node, whatever the plugin's "
    "strategy is. Ignore this if all pods of the node belong to one tenant."
)
_SEE: Final = "See 'Several tenants on one node' in the README of the plugin."


def look(node: Node, config: RuntimeConfig | None, requests: Requests | None) -> Iterator[Finding]:
    """Yield whether NVIDIA's runtime gives GPUs to whoever names them."""
    if config is None or requests is None:
        if config is None and _got_them_so(node):
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
    elif config.is_default:
        yield warning(
            _WHAT,
            f"any container gets them by {_VARIABLE}: NVIDIA's runtime is the default, and "
            f"{BY_VARIABLE} is not false",
            means=_MEANS,
            do=f"set {BY_VARIABLE} = false in {_shown(node, requests.file)}, and add the "
            f"components gpu-cdi and gpu-privileged to the plugin. {_SEE}",
        )
    else:
        names = ", ".join(config.nvidia)
        yield ok(_WHAT, f"a pod gets them by {_VARIABLE} if it has the runtimeClassName {names}")


def _got_them_so(node: Node) -> bool:
    """Return whether this container has GPUs by the variable, as the plugin's own pod may."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", node.peek("proc/self/status"), re.MULTILINE)
    is_privileged = found is None or bool(int(found[1], 16) & _SYS_ADMIN)
    asks = os.environ.get(_VARIABLE, "") not in {"", "void", "none"}
    return asks and not is_privileged and node.exists("dev/nvidiactl")


def _shown(node: Node, file: Path) -> str:
    """Return the path on the node, which may be mounted elsewhere here."""
    return f"/{file.relative_to(node.root)}"
