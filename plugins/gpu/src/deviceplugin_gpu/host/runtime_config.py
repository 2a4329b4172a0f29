"""What the node's configuration says of NVIDIA's container runtime, and of CDI."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.checks import runtime_config

BY_VARIABLE: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
"""The setting of NVIDIA's runtime by which any container gets the GPUs that it names itself."""
BY_MOUNTS: Final = "accept-nvidia-visible-devices-as-volume-mounts"
FILE: Final = "etc/nvidia-container-runtime/config.toml"
"""Where NVIDIA's runtime has its settings, unless they are beside its program."""
_NVIDIA: Final = "nvidia"
_BESIDE: Final = ".config/nvidia-container-runtime/config.toml"
"""Where NVIDIA's toolkit container installs the settings, below the folder of the program."""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The configuration in all files together."""

    files: tuple[Path, ...]
    nvidia: tuple[str, ...] = ()
    """Names of NVIDIA's runtimes. A pod chooses one by its runtimeClassName."""
    is_default: bool = False
    """Whether one of them is used for pods without a runtimeClassName."""
    cdi: bool | None = None
    """Whether CDI is enabled; None if that depends on the version of containerd."""
    faults: tuple[str, ...] = ()
    """Files that cannot be read, with the reason."""
    program: str = ""
    """The program of NVIDIA's runtime that is the default, or else of the first; empty if none."""


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


def read(root: Path) -> RuntimeConfig | None:
    """Return the configuration of the node at ``root``; None if none is found."""
    found = runtime_config(root)
    if found is None:
        return None
    nvidia = tuple(sorted(name for name, one in found.programs.items() if _NVIDIA in one))
    is_default = found.default in nvidia
    used = found.default if is_default else next(iter(nvidia), "")
    program = found.programs.get(used, "")
    return RuntimeConfig(found.files, nvidia, is_default, found.cdi, found.faults, program)


def requests(root: Path, program: str) -> Requests:
    """Return what the settings of the runtime ``program`` accept on the node at ``root``."""
    beside = root / Path(program.lstrip("/")).parent / _BESIDE
    file = beside if beside.exists() else root / FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Requests(file)
    except (OSError, ValueError) as error:
        return Requests(file, fault=f"cannot be read: {str(error).splitlines()[0]}")
    given = [document.get(BY_VARIABLE, True), document.get(BY_MOUNTS, False)]
    for name, value in zip((BY_VARIABLE, BY_MOUNTS), given, strict=True):
        if not isinstance(value, bool):
            return Requests(file, fault=f"{name} = {value!r} is neither true nor false")
    return Requests(file, *given)
