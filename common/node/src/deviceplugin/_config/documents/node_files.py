"""One of several configuration files, for this node: in a directory such as a mounted ConfigMap."""

import os
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError

DEFAULT: Final = "default"
"""The name of the file for nodes that no other is for, with or without an extension."""
_VARIABLES: Final = ("DP_NODE_NAME", "NODE_NAME")
"""Those of the setting ``node-name``, which is needed before a file is read."""


def of_node(path: Path) -> Path:
    """Return ``path``; if it is a directory, the file in it that is called as this node.

    Raises:
        ConfigError: The directory has neither a file of this node nor a default.
    """
    if not path.is_dir():
        return path
    node = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "")
    try:
        files = sorted(one for one in path.iterdir() if one.is_file() and one.name[0] != ".")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    known = {one.stem: one for one in files} | {one.name: one for one in files}
    if found := known.get(node) or known.get(DEFAULT):
        return found
    names = ", ".join(one.name for one in files) or "nothing"
    needed = f"a file {node}, as this node is called" if node else "node-name in the environment"
    raise ConfigError(f"{path}: has {names}: it needs {needed}, or a file {DEFAULT}")
