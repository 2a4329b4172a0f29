"""Opens the render nodes of a container and prints their drivers' versions as a JSON object.

It runs alone in a container, with nothing but Python's own library.
"""

import ctypes
import fcntl
import json
import os
import struct
from pathlib import Path

_VERSION = 0xC040_6400
"""DRM_IOCTL_VERSION, whose argument has three numbers, and three texts as length and pointer."""


def version(path: str) -> str:
    """Return driver and version of a node, such as ``amdgpu 3.61.0``; raise OSError."""
    name = ctypes.create_string_buffer(64)
    given = struct.pack("@iiiNPNPNP", 0, 0, 0, len(name) - 1, ctypes.addressof(name), 0, 0, 0, 0)
    node = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        numbers = struct.unpack_from("@iii", fcntl.ioctl(node, _VERSION, given))
    finally:
        os.close(node)
    return f"{name.value.decode(errors='replace')} {'.'.join(map(str, numbers))}"


if __name__ == "__main__":
    nodes = {}
    for path in sorted(map(str, Path("/dev/dri").glob("renderD*"))):
        try:
            nodes[path] = version(path)
        except OSError as error:
            nodes[path] = f"{error.strerror} ({error.errno})"
    print(json.dumps({"nodes": nodes}))  # noqa: T201
