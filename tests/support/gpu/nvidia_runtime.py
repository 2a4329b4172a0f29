"""A stand-in for NVIDIA's container runtime: runc, which adds GPUs that a container asks for.

It knows what the variable ``NVIDIA_VISIBLE_DEVICES`` and mounts in its place ask for, by UUID, and
nothing else of what the real one does. What a GPU brings is told to it as the edits of a CDI
specification. Where somebody has the real one, it can be called in its place.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from containers.cdi_bundle import apply

SUPPORT = Path(__file__).parents[1]
MOUNTED = "/var/run/nvidia-container-devices"
_NONE = {"", "void", "none"}


def install(path: Path, gpus: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Write the program to ``path``, which is to be called in runc's place."""
    known = path.with_suffix(".json")
    known.write_text(json.dumps(gpus))
    path.write_text(
        f"#!{sys.executable} -I\n"
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\n"
        f"from gpu.nvidia_runtime import main\nmain({str(known)!r}, sys.argv[1:])\n"
    )
    path.chmod(0o755)
    return path


def install_real(path: Path, program: Path, driver: Path, environment: Mapping[str, str]) -> Path:
    """Write to ``path`` what calls ``program``, NVIDIA's own runtime, and return it.

    ``nvidia-ctk`` is beside it. ``driver`` is the driver's root. ``environment`` has it find NVML.
    """
    folder = path.with_suffix(".etc") / "nvidia-container-runtime"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
        f'[nvidia-container-cli]\nroot = "{driver}"\n'
        '[nvidia-container-runtime]\nruntimes = ["runc"]\n'
        f'[nvidia-ctk]\npath = "{program.with_name("nvidia-ctk")}"\n'
    )
    variables = {**environment, "XDG_CONFIG_HOME": str(folder.parent)}
    words = shlex.join(f"{name}={value}" for name, value in variables.items())
    path.write_text(f'#!/bin/sh\nexec env {words} {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o755)
    return path


def main(known: str, words: list[str]) -> None:
    """Change the container that is to be created, and go on as runc."""
    if "create" in words:
        config = Path(words[words.index("--bundle") + 1]) / "config.json"
        spec = json.loads(config.read_text())
        gpus = json.loads(Path(known).read_text())
        for uuid in _asked(spec):
            for edits in gpus[uuid]:
                apply(spec, edits)
        config.write_text(json.dumps(spec))
    os.execvp("runc", ["runc", *words])


def _asked(spec: Mapping[str, Any]) -> Iterator[str]:
    variables = dict(one.split("=", 1) for one in spec["process"]["env"])
    value = variables.get("NVIDIA_VISIBLE_DEVICES", "")
    if value == MOUNTED:
        targets = (one["destination"] for one in spec["mounts"])
        yield from (Path(one).name for one in targets if one.startswith(f"{MOUNTED}/"))
    elif value not in _NONE:
        yield from value.split(",")
