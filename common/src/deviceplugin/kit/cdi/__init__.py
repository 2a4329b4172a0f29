"""CDI specification files, by which a container runtime makes devices appear in containers.

Say what devices need by `Edits`, put them into a `Specification`, have a `Directory` contain that.
A runtime leaves out a file with one fault, silently, and then starts no container that names its
devices; so what is wrong is an error here, and the version of a file is the oldest that will do.
"""

from pathlib import Path
from typing import Final

from deviceplugin.kit.cdi._directory import Directory
from deviceplugin.kit.cdi._specification import (
    Edits,
    Hook,
    Specification,
    is_device_name,
    is_kind,
    least_version,
)

__all__ = [
    "DIRECTORIES",
    "Directory",
    "Edits",
    "Hook",
    "Specification",
    "is_device_name",
    "is_kind",
    "least_version",
]

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where runtimes look. What is in the last one wins; a reboot empties it."""
