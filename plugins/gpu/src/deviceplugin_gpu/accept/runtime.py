"""What NVIDIA's container runtime adds to a container by variables and mounts."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from deviceplugin_gpu.container.allocation import DEVICES, VISIBLE
from deviceplugin_gpu.container.nvidia_ctk import KIND

_PROGRAM: Final = "nvidia-ctk"
_TOOLKIT: Final = "/usr/bin:/usr/local/bin:/usr/local/nvidia/toolkit"
_PATIENCE: Final = 30.0


def cdi_devices(
    variables: Mapping[str, str], mounts: Sequence[str], folder: Path
) -> tuple[list[str], str]:
    """Return the CDI devices that the runtime adds in its mode ``cdi``, or why it adds none.

    Their specification is what NVIDIA's toolkit generates now, and goes to ``folder``. It is what
    the toolkit does itself for each container, since 1.18.
    """
    wanted = variables.get(VISIBLE, "")
    if wanted == DEVICES:
        names = [Path(one).name for one in mounts if str(Path(one).parent) == DEVICES]
    else:
        names = wanted.split(",") if wanted else []
    if not names:
        return [], f"the answer names no device: {VISIBLE} is {wanted!r}"
    return [f"{KIND}={name}" for name in names], _generate(folder)


def _generate(folder: Path) -> str:
    """Have the toolkit write its specification unless it has, and return why it cannot."""
    file = folder / "nvidia.json"
    if file.exists():
        return ""
    program = shutil.which(_PROGRAM) or shutil.which(_PROGRAM, path=_TOOLKIT)
    if program is None:
        return f"nothing on this machine reads {VISIBLE}: NVIDIA's container toolkit is missing"
    folder.mkdir(exist_ok=True)
    names = [f"--device-name-strategy={one}" for one in ("uuid", "index")]
    words = [program, "cdi", "generate", f"--output={file}", "--format=json", *names]
    try:
        done = subprocess.run(  # noqa: S603 - the vendor's own program, as its runtime runs it
            words, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{_PROGRAM} cdi generate: {error}"
    lines = done.stderr.strip().splitlines() or ["no message"]
    return f"{_PROGRAM} cdi generate: {lines[-1]}" if done.returncode else ""
