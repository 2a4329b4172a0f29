"""The hook of NVIDIA's toolkit that rebuilds the dynamic linker's cache of a container.

Programs find the libraries that ``driver_files`` mounts without it. With it, ``ldconfig -p`` in the
container lists them too. Some programs, such as Triton, read that list instead of asking the
linker.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from deviceplugin.kit.cdi import Edits, Hook
from deviceplugin.kit.health import absence
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
    """Return the path of the hook program on the host; empty if none can be used.

    A configured path is used as it is. Otherwise the program must be visible, which is possible
    only if the driver's root is the host's.
    """
    if {_ALL, _NAME} & {*settings.cdi_disable_hooks}:
        return ""
    if settings.nvidia_cdi_hook_path != GpuSettings().nvidia_cdi_hook_path:
        return str(settings.nvidia_cdi_hook_path)
    if settings.driver_root != Path("/"):
        return ""
    root = settings.driver_root_ctr_path
    return next((place for place in _PLACES if not absence(root / place.lstrip("/"))), "")


def edits(program: str, directories: Iterable[str]) -> Edits:
    """Return the hook by which ``program`` adds the libraries in ``directories`` to the cache."""
    if not program:
        return Edits()
    name = PurePosixPath(program).name
    words = [name, _NAME] if name == "nvidia-cdi-hook" else [name, "hook", _NAME]
    folders = [word for directory in directories for word in ("--folder", directory)]
    return Edits(hooks=[Hook("createContainer", program, (*words, *folders))])
