"""CDI specifications, which have the container runtime call the programming hook.

JSON under the names that intel-device-plugins-for-kubernetes gives its YAML: a runtime reads both
alike, and would refuse a device that two files describe.
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
    """Have a specification of ``device`` in ``folder``; one that says the same is left alone.

    Raises:
        OSError: It cannot be written.
    """
    edits = Edits(hooks=[Hook("createRuntime", str(hook))])
    file = f"{_KIND.replace('/', '-')}-{device}.yaml"
    folder.write(Specification(_KIND, {device: edits}), file)
