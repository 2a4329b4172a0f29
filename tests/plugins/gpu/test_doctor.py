"""The doctor's check of GPUs on the machine itself, where the dynamic linker is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin_gpu.nvml.library import SONAME

PROGRAM = """
from pathlib import Path
from deviceplugin.checks import Node
from deviceplugin_gpu.doctor import _missing_library
print(_missing_library(Node.at_root(Path("/"))))
"""


def missing(folder: Path) -> str:
    """Return where a process whose linker looks in ``folder`` does not find the library."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


def test_the_library_is_looked_for_as_the_linker_does(tmp_path: Path) -> None:
    told = missing(tmp_path)
    if not told:
        pytest.skip(f"this machine has {SONAME}")
    assert "usr/lib64" in told
    assert "below /driver-root, then where the dynamic linker does" in told
    (tmp_path / SONAME).write_text("not a library")
    assert f"{SONAME}: file too short" in missing(tmp_path)
    (tmp_path / SONAME).unlink()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    some = next(path for path in sorted(mapped) if path.startswith("/") and "libc.so" in path)
    (tmp_path / SONAME).symlink_to(some)
    assert "" == missing(tmp_path), "only the linker finds it"
