"""Opens the render nodes of a container and asks their drivers for their versions.

Run by its path, it is the program in the container, and needs nothing but Python's own library.
"""

import ctypes
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from deviceplugin.checks import Finding, Found

PROBE: Final = Path(__file__)
_VERSION: Final = 0xC040_6400
"""DRM_IOCTL_VERSION."""


class _Version(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("major", "minor", "patch")),
        *(
            field
            for name in ("name", "date", "desc")
            for field in ((f"{name}_len", ctypes.c_size_t), (name, ctypes.c_void_p))
        ),
    )


def version(path: str) -> str:
    """Return driver and version of a node, such as ``amdgpu 3.61.0``; raise OSError."""
    node = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        text = ctypes.create_string_buffer(64)
        found = _Version(name_len=len(text) - 1, name=ctypes.addressof(text))
        fcntl.ioctl(node, _VERSION, found)
    finally:
        os.close(node)
    name = text.value.decode(errors="replace")
    return f"{name} {found.major}.{found.minor}.{found.patch}"


def judge(drivers: frozenset[str]) -> Callable[["Found", Mapping[str, Any]], Iterable["Finding"]]:
    """Return what judges the versions: each must be of one of ``drivers``."""
    from deviceplugin.checks import failure, ok

    do = "attach the report to an issue."

    def judged(_device: "Found", result: Mapping[str, Any]) -> Iterator["Finding"]:
        if not result["nodes"]:
            yield failure("render node", "none", means="a pod could not use the device.", do=do)
        for path, text in result["nodes"].items():
            if text.partition(" ")[0] in drivers:
                yield ok(path, text)
            else:
                means = "a pod would not get the device that it asked for."
                yield failure(path, text, means=means, do=do)

    return judged


def main() -> None:
    """Print the version of each node, or why there is none."""
    nodes = {}
    for path in sorted(map(str, Path("/dev/dri").glob("renderD*"))):
        try:
            nodes[path] = version(path)
        except OSError as error:
            nodes[path] = f"{error.strerror} ({error.errno})"
    print(json.dumps({"nodes": nodes}))  # noqa: T201


if __name__ == "__main__":
    main()
