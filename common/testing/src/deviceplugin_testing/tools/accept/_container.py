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
from functools import cache
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.simulator import RunOptions

INIT: Final = Path(__file__).with_name("_init.py")
PROBE: Final = "/accept/probe.py"
"""Where the program is in the container."""
_NAMESPACES: Final = ("--mount", "--pid", "--ipc", "--net", "--uts", "--fork", "--kill-child")
_LINKS: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_C_LIBRARY: Final = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
    *("libgcc_s.so.1", "libstdc++.so.6"),
)
"""What images have, and drivers need."""
_NEEDED: Final = re.compile(r"(/\S+) \(0x")
_USUAL: Final = re.compile(r"(/usr)?/lib(64)?(/[^/]+-linux-gnu[^/]*)?")
_PROGRAM: Final = 40.0
"""Seconds for one program: without persistence mode, a driver with many GPUs starts slowly."""
_LONGEST: Final = 300
_REFUSED: Final = 125
"""The exit status of ``_init.py`` if the program could not be started."""


def tied(*command: str) -> list[str]:
    """Return a command that the kernel kills with this process."""
    return [sys.executable, "-I", "-S", str(INIT), str(os.getpid()), *command]


@cache
def _image() -> tuple[dict[str, str], list[tuple[str, str, bool]], dict[str, str]]:
    """Return the links at the root, the read-only mounts and the variables of the image."""
    python, folder = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    modules = map(str, Path(folder, "lib-dynload").glob("_ctypes.*"))
    words = ["ldd", python, *modules]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    found = {*_NEEDED.findall(done.stdout)}
    homes = {str(Path(path).parent) for path in found if path.endswith("/libc.so.6")}
    found |= {f"{home}/{name}" for home in homes for name in _C_LIBRARY}
    files = [python, *sorted(path for path in found if Path(path).exists())]
    tops = [name for name in _LINKS if Path("/", name).is_symlink()]
    links = {name: str(Path("/", name).readlink()).lstrip("/") for name in tops}
    odd = sorted({home for path in found if not _USUAL.fullmatch(home := str(Path(path).parent))})
    own = {"LD_LIBRARY_PATH": ":".join(odd)} if odd else {}
    return links, [(path, path, True) for path in (*files, folder)], own


def run(
    options: RunOptions,
    probe: Path,
    words: Sequence[str],
    folder: Path,
    timeout: float = _PROGRAM,
) -> dict[str, Any]:
    """Run ``probe`` with the arguments ``words`` in a container of its own, below ``folder``.

    Return the JSON object that it printed last. If there is none, ``error`` says why.
    """
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
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            tied("unshare", *_NAMESPACES, sys.executable, "-I", "-S", str(INIT)),
            input=json.dumps(spec).encode(),
            capture_output=True,
            start_new_session=True,  # a Ctrl-C in a terminal is for us, who end it
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {timeout:.0f} s"}
    return _read(done.returncode, _last(done.stdout), _last(done.stderr) or "no message")


def _last(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or [""])[-1]


def _read(status: int, output: str, why: str) -> dict[str, Any]:
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    why = why[:_LONGEST]
    return {"error": why if status == _REFUSED else f"ended with status {status}: {why}"}
