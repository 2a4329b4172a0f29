"""Whether the container runtime adds CDI devices: all that a claim gives goes that way."""

from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok, runtime_config, unknown, warning
from deviceplugin.tools.doctor._check import Check

_RUNTIME: Final = "container runtime"
_STANDARD: Final = ("/etc/cdi", "/var/run/cdi")
_ENABLE: Final = (
    "set enable_cdi = true in the section of containerd's CRI plugin, and restart containerd; or "
    "use containerd 2 or CRI-O."
)


def _check(node: Node) -> Iterator[Finding]:
    if node.settings.protocol != "dra":
        yield ok(_RUNTIME, "is not examined for CDI; only protocol=dra needs it")
        return
    config = runtime_config(node.root)
    if config is None:
        do = "run the doctor on the node, or with its root mounted: --root."
        yield unknown(_RUNTIME, "no configuration found", do)
        return
    files = ", ".join(map(str, config.files))
    for fault in config.faults:
        means = "the doctor ignores that file, and a runtime may not start with it."
        yield warning(_RUNTIME, fault, means=means, do="correct it.")
    if config.cdi is None:
        yield unknown(
            files or _RUNTIME,
            "does not say whether CDI is on; it is from containerd 2, and off in containerd 1.7",
            f"with containerd --version of 1.7, {_ENABLE}",
        )
    elif not config.cdi:
        means = "pods with claims start without their devices, or fail."
        yield failure(files, "CDI is off", means=means, do=_ENABLE)
    else:
        yield ok(files, "CDI is on")
    directory = str(node.settings.cdi_dir)
    known = config.cdi_dirs or _STANDARD
    if _plain(directory) not in map(_plain, known):
        yield failure(
            files or _RUNTIME,
            f"it looks for CDI files in {', '.join(known)}, and not in {directory}",
            means="pods with claims fail: 'unresolvable CDI devices'.",
            do="add the directory to cdi_spec_dirs, or set cdi-dir to one of these.",
        )


def _plain(path: str) -> str:
    """Return ``path`` without what usually is a link: /var/run is /run."""
    return path.rstrip("/").replace("/var/run/", "/run/", 1)


CHECK: Final = Check("dra-runtime", "whether the container runtime adds CDI devices", _check)
