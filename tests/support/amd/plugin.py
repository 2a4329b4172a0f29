"""Words for tests of the AMD GPU plugin."""

from collections.abc import Callable

from amd.tree import AmdTree
from deviceplugin_amd import AmdPlugin

Make = Callable[..., AmdPlugin]
"""Makes a plugin for a tree, with settings by their names."""
Build = Callable[..., AmdTree]
"""Makes the tree of a machine."""
