"""NVIDIA's programs on this machine, and what its container runtime adds to a container."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from deviceplugin_gpu.container.allocation import DEVICES, VISIBLE
from deviceplugin_gpu.container.nvidia_ctk import KIND

_TOOLKIT: Final = "/usr/bin:/usr/local/bin:/usr/local/nvidia/toolkit"
_PATIENCE: Final = 20.0


class ProgramError(Exception):
    """A program does not answer; the message says why."""


def ask(*words: str, environment: Mapping[str, str] | None = None) -> str:
    """Return what a program prints, or raise ProgramError."""
    try:
        done = subprocess.run(  # noqa: S603 - the vendor's own program
            words,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramError(str(error)) from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        raise ProgramError(f"status {done.returncode}: {lines[-1]}")
    return done.stdout


def cdi_devices(
    variables: Mapping[str, str], mounts: Sequence[str], folder: Path
) -> tuple[list[str], str]:
    """Return the CDI devices that the runtime adds in its mode ``cdi``, or why it adds none.

    Their specification is what NVIDIA's toolkit generates now, and goes to ``folder``. It is what
    the toolkit does itself for each container, since 1.18.
    """
    wanted = variables.get(VISIBLE, "")
    names = wanted.split(",") if wanted else []
    if wanted == DEVICES:
        names = [Path(one).name for one in mounts if str(Path(one).parent) == DEVICES]
    if not names:
        return [], f"the answer names no device: {VISIBLE} is {wanted!r}"
    return [f"{KIND}={name}" for name in names], _generate(folder / "nvidia.json")


def _generate(file: Path) -> str:
    """Have the toolkit write its specification unless it has, and return why it cannot."""
    if file.exists():
        return ""
    program = shutil.which("nvidia-ctk") or shutil.which("nvidia-ctk", path=_TOOLKIT)
    if program is None:
        return f"nothing on this machine reads {VISIBLE}: NVIDIA's container toolkit is missing"
    file.parent.mkdir(exist_ok=True)
    names = [f"--device-name-strategy={one}" for one in ("uuid", "index")]
    try:
        ask(program, "cdi", "generate", f"--output={file}", "--format=json", *names)
    except ProgramError as error:
        return f"nvidia-ctk cdi generate: {error}"
    return ""
