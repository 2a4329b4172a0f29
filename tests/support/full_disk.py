"""A disk on which nothing more fits, or that cannot sync directories, for this process."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """Let no file grow beyond ``room`` bytes meanwhile: "File too large" says who tries."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def failing_syncs(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Let each sync of a directory fail meanwhile with the error ``number``."""
    sync = os.fsync

    def only_files(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", only_files)
        yield
