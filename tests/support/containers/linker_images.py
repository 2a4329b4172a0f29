"""Images in which programs are linked dynamically, laid out as two families of distributions are.

``debian`` has the dynamic linker and the C library of this machine, a Debian or its like, in
``/usr/lib/<machine>-linux-gnu``. ``red_hat`` imitates Red Hat, SUSE and their like: the same C
library in ``/usr/lib64``, and the same linker, in which the directories that it looks in by itself
are replaced by ``/lib64`` and ``/usr/lib64``. Neither has a cache (``/etc/ld.so.cache``), as is
usual for small images.
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from containers import oci_image

_TRIPLET: Final = f"{platform.machine()}-linux-gnu"
_SHELL: Final = ("sh", "cat", "ls", "sleep", "id", "env")


@dataclass(frozen=True)
class Image:
    """What is in an image, and how it is to be found."""

    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)

    def unpack(self, root: Path) -> None:
        """Put it below ``root``."""
        for name, target in self.links.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target)
        for name, content in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
            (root / name).chmod(0o755)

    def write(self, archive: Path, name: str) -> None:
        """Write it as an OCI archive."""
        config = {"Env": [f"PATH={oci_image.PATH}"]}
        oci_image.write(archive, name, config, self.files, self.links)


def why_not() -> str:
    """Return why there can be no such images here; empty if there can."""
    if oci_image.busybox() is None:
        return "no busybox without libraries: apt-get install busybox-static"
    if not Path(f"/usr/lib/{_TRIPLET}/libc.so.6").exists():
        return f"no /usr/lib/{_TRIPLET}/libc.so.6: this is not a Debian"
    return ""


def debian(program: Path) -> Image:
    """Return an image as Debian's are, with ``program`` as ``/usr/bin/program``."""
    linker = _linker(program)
    name, folder = linker.name, f"usr/lib/{_TRIPLET}"
    files = {f"{folder}/{name}": linker.read_bytes(), f"{folder}/libc.so.6": _libc()}
    place = f"/{folder}/{name}"
    # The place that programs name is in /lib64 on some machines, and in /lib on others.
    own = {"usr/lib64/" + name: place} if linker.parent.name == "lib64" else {}
    if not own:
        own = {f"usr/lib/{name}": place}
    return _image(program, files, own)


def red_hat(program: Path) -> Image:
    """Return an image as Red Hat's are, with ``program`` as ``/usr/bin/program``."""
    linker = _linker(program)
    files = {
        f"usr/lib64/{linker.name}": _as_red_hat(linker.read_bytes()),
        "usr/lib64/libc.so.6": _libc(),
        "usr/lib/os-release": b"ID_LIKE=rhel\n",
    }
    own = {}
    if linker.parent.name != "lib64":
        own = {f"usr/lib/{linker.name}": f"/usr/lib64/{linker.name}"}
    return _image(program, files, own)


def _image(program: Path, files: Mapping[str, bytes], links: Mapping[str, str]) -> Image:
    busybox = oci_image.busybox()
    assert busybox is not None
    tools = {f"usr/bin/{name}": "/usr/bin/busybox" for name in _SHELL}
    programs = {
        "usr/bin/busybox": busybox.read_bytes(),
        "usr/bin/program": program.read_bytes(),
    }
    merged = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
    return Image({**files, **programs}, {**merged, **tools, **links})


def _linker(program: Path) -> Path:
    words = ["readelf", "--program-headers", str(program)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"interpreter: (\S+)\]", said)
    assert found is not None, said
    return Path(found[1])


def _libc() -> bytes:
    return Path(f"/usr/lib/{_TRIPLET}/libc.so.6").read_bytes()


def _as_red_hat(linker: bytes) -> bytes:
    """Return a linker that looks in other directories by itself, in names of the same length."""
    before = [f"/lib/{_TRIPLET}/", f"/usr/lib/{_TRIPLET}/", "/lib/", "/usr/lib/"]
    after = ["/lib64", "/usr/lib64", "", ""]
    padded = [new.ljust(len(old), "/") for old, new in zip(before, after, strict=True)]
    old, new = (b"".join(os.fsencode(f"{one}\0") for one in each) for each in (before, padded))
    assert old in linker, "this linker does not have the directories of Debian's"
    return linker.replace(old, new)
