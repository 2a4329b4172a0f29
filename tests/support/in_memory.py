"""A plugin of pytest: the folders of tests are made in memory, where the machine offers that.

Tests make 160,000 small files. On a disk these took a fifth of all time.
"""

import gc
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")
_PREFIX: Final = "dp-tests-"
_OWN: Final = MEMORY / f"{_PREFIX}{os.getpid()}"
"""Short, because the path of a socket has 107 bytes at most."""
ENOUGH: Final = 2**30
"""Bytes that must be free there: a run with slow tests needs a quarter of it."""


def has_room(folder: Path) -> bool:
    """Return whether tests can make their folders, and start programs, in ``folder``."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= ENOUGH and not found.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Somebody's own choice counts: --basetemp, TMPDIR, or a variable of pytest's.
    chosen = {"PYTEST_DEBUG_TEMPROOT", "TMPDIR"} & os.environ.keys() or config.option.basetemp
    if chosen or not has_room(MEMORY):
        return
    for left in MEMORY.glob(f"{_PREFIX}*"):  # with failed tests
        if not Path("/proc", left.name.removeprefix(_PREFIX)).exists():
            shutil.rmtree(left, ignore_errors=True)
    config.option.basetemp = str(_OWN)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and session.config.option.basetemp == str(_OWN):
        shutil.rmtree(_OWN, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Spare the garbage collector ten thousand tests, which are there until the end."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
