"""The library of plugins/gpu/fake-nvml, compiled."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "plugins/gpu/fake-nvml"
SONAME = "libnvidia-ml.so.1"


def build(into: Path, without: Collection[str] = ()) -> Path:
    """Compile the library below ``into``, unless it is there, and return its path.

    It lacks the functions ``without``, as an older driver's does. Several processes may do so at
    once: one compiles, the others wait. ``CFLAGS`` are the compiler's, as in a Makefile. Raises
    ``RuntimeError`` if there is no C compiler.
    """
    flags = os.environ.get("CFLAGS", "-O0").split()
    sources = sorted(SOURCES.glob("*.[ch]"))
    arguments = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", *flags, "-fPIC", "-shared"]
    arguments += ["-fvisibility=hidden", f"-Wl,-soname,{SONAME}", "-Wl,-Bsymbolic"]
    arguments += ["-pthread"]
    hidden = f"{{ local: {' '.join(f'{name};' for name in sorted(without))} }};" if without else ""
    digest = hashlib.sha256(repr((arguments, hidden)).encode())
    for path in sources:
        digest.update(path.read_bytes())
    library = into / digest.hexdigest()[:16] / SONAME
    if hidden:
        arguments.append("-Wl,--version-script=/dev/stdin")
    own = [str(path) for path in sources if path.suffix == ".c"]
    return compile_c(library, [*arguments, *own], hidden)


def compile_c(made: Path, arguments: Sequence[str], given: str = "") -> Path:
    """Compile to ``made`` unless an earlier call has, in whatever process, and return it.

    The compiler is ``given`` that on its standard input. Raises ``RuntimeError`` if it fails, or is
    not there.
    """
    made.parent.mkdir(parents=True, exist_ok=True)
    partial = made.with_name(f"{made.name}.partial")
    command = ["cc", *arguments, "-o", str(partial)]
    with made.with_name(f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made
        try:
            subprocess.run(command, input=given, capture_output=True, text=True, check=True)
        except FileNotFoundError as error:
            raise RuntimeError(
                "the fake NVML needs a C compiler: install cc (gcc or clang)"
            ) from error
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"the fake NVML does not compile:\n{error.stderr}") from error
        partial.replace(made)
    return made


def kept(config: pytest.Config, name: str) -> Path:
    """Return a folder that later runs have too: pytest's, or where that cannot be the user's."""
    try:
        return config.cache.mkdir(name)
    except (AttributeError, OSError):  # it is switched off, or the checkout cannot be written
        folder = Path(tempfile.gettempdir(), f"deviceplugin-tests-{os.getuid()}", name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def build_or_skip(into: Path, without: Collection[str] = ()) -> Path:
    """Do as ``build``, and skip the test where there is no C compiler, but not in CI."""
    if shutil.which("cc") is None and "CI" not in os.environ:
        pytest.skip("the fake NVML needs a C compiler: install cc (gcc or clang)")
    return build(into, without)
