"""Words for tests of the generic plugin."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin_generic import GenericPlugin

Make = Callable[..., GenericPlugin]


def make_node(path: Path) -> None:
    """Make a real device node, for a directory, in which links do not count."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, 0o020600, os.makedev(1, 3))
    except OSError as error:
        pytest.skip(f"no device nodes can be made here: {error}")
