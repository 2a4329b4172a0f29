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

from archive import ABOUT, Archive, blob_path

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
STATEMENT: Final = "application/vnd.in-toto+json"
CYCLONEDX: Final = "https://cyclonedx.org/bom"
INDEX: Final = "application/vnd.oci.image.index.v1+json"


def join(parts: Sequence[Path], target: Path) -> None:
    """Write ``target``, an OCI archive with the images of all ``parts``, or raise ValueError."""
    blobs: dict[str, bytes] = {}
    bills: list[dict[str, Any]] = []
    manifests: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for part in parts:
        archive = Archive(part)
        if archive.is_joined:
            raise ValueError(f"{part} is not an OCI archive of one image")
        entry, config = archive.entry, archive.config
        platform = {key: config[key] for key in ("architecture", "os", "variant") if key in config}
        if platform["architecture"] in manifests:
            raise ValueError(f"{part}: there is an image for {platform['architecture']} already")
        names = names or entry.get("annotations", {})
        kept = {key: entry[key] for key in ("mediaType", "digest", "size")}
        manifests[platform["architecture"]] = {**kept, "platform": platform}
        files = archive.files.items()
        blobs |= {name: content for name, content in files if name.startswith("blobs/")}
        if (bill := part.with_suffix(".cdx.json")).is_file():
            made, more = attach(bill.read_bytes(), entry["digest"])
            bills.append(made)
            blobs |= {blob_path(name): content for name, content in more.items()}
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
            blob_path(digest): index,
        },
    )


def attach(bill: bytes, digest: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a bill of materials as a statement about the image with ``digest``: entry and blobs.

    It is a manifest for no platform, as BuildKit has it. So every registry takes it, it is copied
    with the image, and the digest of the index is its digest too.
    """
    predicate = json.loads(bill)
    algorithm, _, value = digest.partition(":")
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": predicate["metadata"]["component"]["name"], "digest": {algorithm: value}}
        ],
        "predicateType": CYCLONEDX,
        "predicate": predicate,
    }
    blobs: dict[str, bytes] = {}

    def add(content: dict[str, Any], kind: str) -> dict[str, Any]:
        raw = json.dumps(content).encode()
        name = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        blobs[name] = raw
        return {"mediaType": kind, "digest": name, "size": len(raw)}

    nowhere = {"architecture": "unknown", "os": "unknown"}
    layer = add(statement, STATEMENT)
    root = {"type": "layers", "diff_ids": [layer["digest"]]}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": add({**nowhere, "config": {}, "rootfs": root}, CONFIG),
        "layers": [{**layer, "annotations": {"in-toto.io/predicate-type": CYCLONEDX}}],
    }
    about = {ABOUT: digest, "vnd.docker.reference.type": "attestation-manifest"}
    return {**add(manifest, MANIFEST), "annotations": about, "platform": nowhere}, blobs


def _write(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
