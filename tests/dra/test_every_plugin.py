"""Every plugin of this repository gives containers the same through DRA as by its own protocol.

The GPU plugin is in tests/plugins/gpu.
"""

import shutil
from functools import partial
from pathlib import Path

import pytest

from deviceplugin.plugin import Plugin
from served.both_protocols import by_both
from served.odd_hardware import SUBJECTS


def make(name: str, path: Path) -> Plugin:
    """Return the plugin with its devices, in an empty directory."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return SUBJECTS[name](path)()


@pytest.mark.parametrize(
    "name",
    [
        # What another setting of a plugin gives is a case of the same.
        pytest.param(name, marks=pytest.mark.slow) if "," in name else name
        for name in SUBJECTS
    ],
)
def test_a_container_gets_the_same_through_either_protocol(name: str, root: Path) -> None:
    expected, found = by_both(root, partial(make, name, root / "hw"))
    assert found
    assert expected == found
