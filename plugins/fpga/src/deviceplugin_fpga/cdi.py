"""CDI specifications that make the container runtime call the programming hook.

They are JSON, in files with the names of intel-device-plugins-for-kubernetes' YAML. A runtime reads
both formats, and would refuse a device that is in two files.
"""

from pathlib import Path
from typing import Final

from deviceplugin.kit.cdi import Directory, Edits, Hook, Specification

_VENDOR: Final = "intel.cdi.k8s.io"
_KIND: Final = f"{_VENDOR}/fpga"


def name(device: str) -> str:
    """Return the CDI name of ``device``, such as ``dfl-fme.0``."""
    return f"{_KIND}={device}"


def directory(path: Path) -> Directory:
    """Return the directory at ``path``, with our specifications."""
    return Directory(path, _VENDOR)


def write(folder: Directory, device: str, hook: Path) -> None:
    """Write the specification of ``device`` to ``folder``, unless it has the same content.

    Raises:
        OSError: It cannot be written.
    """
    edits = Edits(hooks=[Hook("createRuntime", str(hook))])
    file = f"{_KIND.replace('/', '-')}-{device}.yaml"
    folder.write(Specification(_KIND, {device: edits}), file)
