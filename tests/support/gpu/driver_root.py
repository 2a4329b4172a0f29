"""The files of a fake driver below a root, laid out as distributions do, compiled from a few lines.

::

    root = DriverRoot(tmp_path / "driver", compiled)        # compiled: a folder that is kept
    root.install("580.95.05")                               # into usr/lib64
    root.install("580.95.05", "usr/lib/x86_64-linux-gnu")
    root.remove("580.95.05")

``libcuda`` needs ``libnvidia-gpucomp``, whose SONAME has the version, and opens
``libnvidia-ptxjitcompiler`` when it is used, as the real one does.
"""

import hashlib
from pathlib import Path
from typing import Final

from gpu import fake_library

VERSION: Final = "580.95.05"
PROGRAM: Final = """
#include <dlfcn.h>
#include <stdio.h>
int cuDriverGetVersion(int *);
int main(int count, char **names) {
    int version = 0;
    if (cuDriverGetVersion(&version)) return 3;
    printf("linked: CUDA %d\\n", version);
    for (int at = 1; at < count; at++) {
        void *library = dlopen(names[at], RTLD_NOW);
        printf("%s: %s\\n", names[at], library ? "found" : dlerror());
        if (!library) return 4;
    }
    return 0;
}
"""
"""A CUDA program: linked with libcuda, and it opens what it is told to."""
_CUDA: Final = Path(__file__).with_name("fake_cuda.c")
_COMPILED: Final = "int compiled(void) { return 7; }"


def compile_c(source: str, into: Path, *flags: str) -> Path:
    """Compile ``source`` unless an earlier call has, in whatever process, and return the file."""
    digest = hashlib.sha256(repr((source, flags)).encode()).hexdigest()[:16]
    return fake_library.compile_c(into / digest, ["-x", "c", "-", *flags], source)


class Compiled:
    """The fake driver's files of one version."""

    def __init__(self, into: Path, version: str = VERSION) -> None:
        def library(source: str, soname: str, *flags: str) -> Path:
            names = (f"-Wl,-soname,{soname}",) if soname else ()
            return compile_c(source, into, "-shared", "-fPIC", *names, *flags)

        compiler = library(_COMPILED, f"libnvidia-gpucomp.so.{version}")
        # As a separate argument, or it would be taken for a source.
        cuda = library(
            _CUDA.read_text(), "libcuda.so.1", "-Wl,--no-as-needed", "-x", "none", str(compiler)
        )
        self.libraries = {
            f"libcuda.so.{version}": cuda,
            f"libnvidia-gpucomp.so.{version}": compiler,
            f"libnvidia-ptxjitcompiler.so.{version}": library("", "libnvidia-ptxjitcompiler.so.1"),
            f"libnvidia-unnamed.so.{version}": library("", ""),
        }
        flags = ("-x", "none", str(cuda), "-Wl,--allow-shlib-undefined")
        self.program = compile_c(PROGRAM, into, *flags)


class DriverRoot:
    """A root with versions of the driver; ``compiled`` is a folder for what is compiled."""

    def __init__(self, path: Path, compiled: Path) -> None:
        self.path, self._compiled = path, compiled
        path.mkdir(parents=True, exist_ok=True)

    def install(self, version: str = VERSION, libraries: str = "usr/lib64") -> Compiled:
        """Have the driver there, with libraries in a directory, and what else comes with it."""
        made = Compiled(self._compiled, version)
        folder = self.path / libraries
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in made.libraries.items():
            (folder / name).write_bytes(source.read_bytes())
        (folder / "libcuda.so.1").unlink(missing_ok=True)
        (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
        self.write("usr/bin/nvidia-smi", "#!/bin/sh\necho NVIDIA-SMI\n", 0o755)
        self.write(f"lib/firmware/nvidia/{version}/gsp_ga10x.bin", "firmware")
        self.write("etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n")
        return made

    def remove(self, version: str = VERSION) -> None:
        """Have it there no longer."""
        for path in self.path.glob(f"**/*.so.{version}"):
            path.unlink()

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """Write a file below the root."""
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        return place
