"""The hook of NVIDIA's toolkit that makes the dynamic linker's cache of a container anew.

Programs find the driver's libraries without it, where ``driver_files`` has them mounted. With it,
``ldconfig -p`` in the container names them too, which some programs read in place of asking the
linker: Triton is one.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from deviceplugin.kit.cdi import Edits, Hook
from deviceplugin_gpu.configuration.settings import GpuSettings

_NAME: Final = "update-ldcache"
_ALL: Final = "all"
_PLACES: Final = (
    "/usr/bin/nvidia-cdi-hook",
    "/usr/bin/nvidia-ctk",
    "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
    "/usr/local/nvidia/toolkit/nvidia-ctk",
)


def program(settings: GpuSettings) -> str:
    """Return the path of the hook program on the host; empty if there is none to be used.

    A path that is given is taken as it is. Otherwise it must be seen, which it can be only where
    the driver's root is the host's.
    """
    if {_ALL, _NAME} & {*settings.cdi_disable_hooks}:
        return ""
    if settings.nvidia_cdi_hook_path != GpuSettings().nvidia_cdi_hook_path:
        return str(settings.nvidia_cdi_hook_path)
    if settings.driver_root != Path("/"):
        return ""
    root = settings.driver_root_ctr_path
    return next((place for place in _PLACES if (root / place.lstrip("/")).exists()), "")


def edits(program: str, directories: Iterable[str]) -> Edits:
    """Return what has ``program`` put the libraries in ``directories`` into the cache."""
    if not program:
        return Edits()
    name = PurePosixPath(program).name
    words = [name, _NAME] if name == "nvidia-cdi-hook" else [name, "hook", _NAME]
    folders = [word for directory in directories for word in ("--folder", directory)]
    return Edits(hooks=[Hook("createContainer", program, (*words, *folders))])
