"""Whether SELinux allows a plugin to connect to the kubelet."""

from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, ok, warning
from deviceplugin.tools.doctor._check import Check

_CONFINED: Final = "container_t"
_FIT: Final = "container_device_plugin_t"
_FREE: Final = frozenset(
    {"spc_t", _FIT, "unconfined_t", "unconfined_service_t", "kubelet_t", "init_t", "kernel_t"}
)


def _check(node: Node) -> Iterator[Finding]:
    enforce = node.peek("sys/fs/selinux/enforce")
    if enforce != "1":
        yield ok("SELinux", "is permissive" if enforce else "is off, or not visible here")
        return
    context = node.peek("proc/self/attr/current").rstrip("\0")
    kind = (context.split(":") + [""] * 3)[2]
    if kind in _FREE:
        yield ok("SELinux", f"is enforcing, and {kind} may connect to the kubelet")
        return
    yield warning(
        "SELinux",
        f"is enforcing, and this process has the type {kind or 'unknown'}",
        means=(
            "container_t may not connect to the kubelet's socket: registration"
            if kind == _CONFINED
            else "it is unknown whether this type may connect to the kubelet's socket: if it may "
            "not, registration"
        )
        + " fails with 'permission denied'.",
        do=f"set securityContext.seLinuxOptions.type to {_FIT}; ausearch -m avc shows denials.",
    )


CHECK: Final = Check("selinux", "whether SELinux allows plugins to connect to the kubelet", _check)
