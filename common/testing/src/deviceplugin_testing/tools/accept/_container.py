"""Runs a program with exactly what an answer of a plugin gives to a container.

The image is as small as can be: this Python and the C library. So there is nothing of a driver but
what the answer and the CDI specifications that it names bring.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.simulator import RunOptions

INIT: Final = Path(__file__).with_name("_init.py")
PROBE: Final = "/accept/probe.py"
"""Where the program is in the container."""
_LINKS: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_C_LIBRARY: Final = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
    *("libgcc_s.so.1", "libstdc++.so.6"),
)
"""What images have, and drivers need."""
_NEEDED: Final = re.compile(r"(?:=>\s+)?(/\S+) \(0x")
_USUAL: Final = re.compile(r"(/usr)?/lib(64)?(/[^/]+-linux-gnu[^/]*)?")
_LONGEST: Final = 300
_REFUSED: Final = 125
"""The exit status of ``_init.py`` if the program could not be started."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the program."""

    output: dict[str, Any]
    """The JSON object that it printed last."""
    problem: str = ""
    """Why there is none."""


@cache
def _image() -> tuple[dict[str, str], list[tuple[str, str, bool]], dict[str, str]]:
    """Return the links at the root, the read-only mounts and the variables of the image."""
    python = os.path.realpath(sys.executable)
    folder = sysconfig.get_path("stdlib")
    module = next(Path(folder, "lib-dynload").glob("_ctypes.*"), None)
    found = _libraries(python)
    linker = next((path for path in found if "/ld-" in path), "")
    if module and linker:
        found |= _libraries(linker, "--list", str(module))
    homes = {str(Path(path).parent) for path in found if path.endswith("/libc.so.6")}
    found |= {f"{home}/{name}" for home in homes for name in _C_LIBRARY}
    files = [python, *sorted(path for path in found if Path(path).exists())]
    tops = [path for name in _LINKS if (path := Path("/", name)).is_symlink()]
    links = {path.name: str(path.readlink()).lstrip("/") for path in tops}
    odd = {str(Path(path).parent) for path in files[1:] if path != linker}
    odd = {path for path in odd if not _USUAL.fullmatch(path)}
    own = {"LD_LIBRARY_PATH": ":".join(sorted(odd))} if odd else {}
    return links, [(path, path, True) for path in (*files, folder)], own


def _libraries(*words: str) -> set[str]:
    done = subprocess.run(  # noqa: S603 - the dynamic linker
        words,
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    return set(_NEEDED.findall(done.stdout))


def run(
    options: RunOptions, probe: Path, words: Sequence[str], folder: Path, timeout: float
) -> Result:
    """Run ``probe`` with the arguments ``words`` in a container of its own, below ``folder``."""
    links, image, own = _image()
    root = folder / "root"
    root.mkdir(exist_ok=True)
    given = [(mount.host_path, mount.container_path, mount.read_only) for mount in options.mounts]
    spec = {
        "root": str(root),
        "links": links,
        "mounts": [*image, (str(probe), PROBE, True), *given],
        "nodes": [(node.host_path, node.container_path) for node in options.devices],
        "hooks": [*options.hooks],
        "gids": [*options.gids],
        "argv": [os.path.realpath(sys.executable), "-I", "-S", PROBE, *words],
        "env": {"PATH": "/usr/bin:/bin", **own, **options.envs},
    }
    command = [sys.executable, "-I", "-S", str(INIT), str(os.getpid())]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command,
            input=json.dumps(spec).encode(),
            capture_output=True,
            start_new_session=True,  # a Ctrl-C in a terminal is for us, who end it
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Result({}, f"did not end within {timeout:.0f} s")
    return _read(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def _read(status: int, output: bytes, errors: str) -> Result:
    last = (output.decode(errors="replace").strip().splitlines() or [""])[-1]
    try:
        found = json.loads(last)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return Result(found)
    why = (errors.strip().splitlines() or ["no message"])[-1][:_LONGEST]
    return Result({}, why if status == _REFUSED else f"ended with status {status}: {why}")
