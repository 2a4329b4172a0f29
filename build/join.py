"""Join the archives of an image for several platforms into one archive.

The result has an index, by whose digest a registry knows the image for all platforms. The archives
of the platforms go into it unchanged, each with the bill of materials that lies beside it, and the
same archives make the same result.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from statement import attach

INDEX: Final = "application/vnd.oci.image.index.v1+json"


def join(parts: Sequence[Path], target: Path) -> None:
    """Write ``target``, an OCI archive with the images of all ``parts``.

    Raises:
        OSError: A part cannot be read.
        ValueError: A part is not an OCI archive of one image, or two are for one platform.
    """
    blobs: dict[str, bytes] = {}
    bills: list[dict[str, Any]] = []
    manifests: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for part in parts:
        entry, found = _read(part)
        config = json.loads(
            found[_path(json.loads(found[_path(entry["digest"])])["config"]["digest"])]
        )
        platform = {key: config[key] for key in ("architecture", "os", "variant") if key in config}
        if platform["architecture"] in manifests:
            raise ValueError(f"{part}: there is an image for {platform['architecture']} already")
        names = names or entry.get("annotations", {})
        kept = {key: entry[key] for key in ("mediaType", "digest", "size")}
        manifests[platform["architecture"]] = {**kept, "platform": platform}
        blobs |= {name: content for name, content in found.items() if name.startswith("blobs/")}
        if (bill := part.with_suffix(".cdx.json")).is_file():
            made = attach(bill.read_bytes(), entry["digest"])
            bills.append(made.entry)
            blobs |= {_path(name): content for name, content in made.blobs.items()}
    listed = [manifests[architecture] for architecture in sorted(manifests)]
    listed += sorted(bills, key=lambda one: str(one["annotations"]))
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()
    digest = f"sha256:{hashlib.sha256(index).hexdigest()}"
    entry = {"mediaType": INDEX, "digest": digest, "size": len(index), "annotations": names}
    _write(
        target,
        {
            "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            **blobs,
            _path(digest): index,
        },
    )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the only entry of an archive's index, and all files."""
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                files[member.name] = content.read()
    entries = json.loads(files.get("index.json", b"{}")).get("manifests", [])
    if len(entries) != 1 or entries[0]["mediaType"] == INDEX:
        raise ValueError(f"{path} is not an OCI archive of one image")
    return entries[0], files


def _write(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
