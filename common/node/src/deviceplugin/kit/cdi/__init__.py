"""CDI specification files, from which a container runtime adds devices to containers.

Describe what each device needs by `Edits`, put these into a `Specification`, and write it to a
`Directory`. If a file has one fault, a runtime silently ignores it, and then starts no container
that names its devices. So any fault is an error here. The version of a file is the oldest that
suffices.
"""

from pathlib import Path
from typing import Final

from deviceplugin.kit.cdi._files import Directory, SpecError, parse
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
    "SpecError",
    "Specification",
    "is_device_name",
    "is_kind",
    "least_version",
    "parse",
]

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The directories that runtimes read. Files in the last one win; a reboot empties it."""
