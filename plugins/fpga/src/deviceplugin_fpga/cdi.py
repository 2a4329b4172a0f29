"""CDI specifications, which have the container runtime call the programming hook.

JSON under the names that intel-device-plugins-for-kubernetes gives its YAML: a runtime reads both
alike, and would refuse a device that two files describe.
"""

import json
from pathlib import Path
from typing import Final

from deviceplugin_fpga import atomic_file

_KIND: Final = "intel.cdi.k8s.io/fpga"
_VERSION: Final = "0.5.0"
"""The oldest that has all that is used: runtimes refuse versions that they do not know."""
_MODE: Final = 0o644


def name(device: str) -> str:
    """Return the CDI name of ``device``, such as ``dfl-fme.0``."""
    return f"{_KIND}={device}"


def write(folder: Path, device: str, hook: Path) -> None:
    """Have a specification of ``device`` in ``folder``; one that says the same is left alone.

    Raises:
        OSError: It cannot be written.
    """
    path = folder / f"{_KIND.replace('/', '-')}-{device}.yaml"
    text = json.dumps(_specification(device, hook), indent=2) + "\n"
    if not atomic_file.has(path, text.encode(), _MODE):
        atomic_file.write(path, text.encode(), _MODE)


def _specification(device: str, hook: Path) -> dict[str, object]:
    hooks = [{"hookName": "createRuntime", "path": str(hook)}]
    return {
        "cdiVersion": _VERSION,
        "kind": _KIND,
        "devices": [{"name": device, "containerEdits": {"hooks": hooks}}],
    }
