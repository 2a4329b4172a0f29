"""Makes images in OCI archives: a layer of a few files, and a configuration."""

import hashlib
import io
import json
import platform
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TYPE = "application/vnd.oci.image"
_OWN = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
_INTERPRETER = 3
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def busybox() -> Path | None:
    """Return the busybox of this machine if it needs no libraries: Debian's busybox-static."""
    found = shutil.which("busybox")
    if found is None:
        return None
    return None if _is_linked(Path(found).read_bytes()) else Path(found)


def _is_linked(program: bytes) -> bool:
    """Tell whether a 64-bit ELF program names an interpreter, which finds its libraries."""
    (table,) = struct.unpack_from("Q", program, 32)
    size, count = struct.unpack_from("HH", program, 54)
    kinds = (struct.unpack_from("I", program, table + size * each)[0] for each in range(count))
    return _INTERPRETER in kinds


def write_busybox(archive: Path, name: str, program: Path, *command: str) -> None:
    """Write an image of ``program``, a busybox, with a link for each command that it has."""
    said = subprocess.run([program, "--list-full"], capture_output=True, text=True, check=True)
    links = {place: "/bin/busybox" for place in said.stdout.split() if place != "bin/busybox"}
    config = {"Env": [f"PATH={PATH}"], "Cmd": command}
    write(archive, name, config, {"bin/busybox": program.read_bytes()}, links)


def write_plugin(archive: Path, architecture: str, content: bytes = b"x") -> str:
    """Write an image that only has a file, as a build of a plugin; return its digest."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    name, files = "docker.io/library/gopher-device-plugin:0.1.0", {"opt/plugin/what": content}
    return write(archive, name, {}, files, {}, architecture)


def write(
    archive: Path,
    name: str,
    config: Mapping[str, Any],
    programs: Mapping[str, bytes],
    links: Mapping[str, str],
    architecture: str = _OWN,
) -> str:
    """Write an image called ``name``, in full as containerd has it; return its digest."""
    layer = _layer(programs, links)
    about = _encode(
        {
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _encode(
        {
            "schemaVersion": 2,
            "config": _describe(f"{_TYPE}.config.v1+json", about),
            "layers": [_describe(f"{_TYPE}.layer.v1.tar", layer)],
        }
    )
    entry = _describe(f"{_TYPE}.manifest.v1+json", manifest)
    full_name = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
    entry["annotations"] = dict.fromkeys(full_name, name)
    files = {f"blobs/{_digest(blob).replace(':', '/')}": blob for blob in (layer, about, manifest)}
    files["oci-layout"] = _encode({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _encode({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(archive, "w") as tar:
        for path, content in files.items():
            _add(tar, path, content)
    return str(entry["digest"])


def _layer(programs: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in _folders([*programs, *links, "proc/-", "sys/-", "dev/-", "tmp/-"]):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for path, content in programs.items():
            _add(tar, path, content, 0o755)
        for path, target in links.items():
            link = tarfile.TarInfo(path)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return made.getvalue()


def _folders(paths: Sequence[str]) -> list[str]:
    found = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(found - {"."})


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(path)
    file.size, file.mode = len(content), mode
    tar.addfile(file, io.BytesIO(content))


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _describe(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}
