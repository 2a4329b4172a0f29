"""What a container runtime's configuration says of NVIDIA's runtime and of CDI."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.checks import runtime_config

_NVIDIA: Final = "nvidia"


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


def read(root: Path) -> RuntimeConfig | None:
    """Return the configuration of the node at ``root``; None if none is found."""
    found = runtime_config(root)
    if found is None:
        return None
    nvidia = tuple(sorted(name for name, one in found.programs.items() if _NVIDIA in one))
    return RuntimeConfig(found.files, nvidia, found.default in nvidia, found.cdi, found.faults)
