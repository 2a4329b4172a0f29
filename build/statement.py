"""Attach the bill of materials of an image to it, as in-toto statements in the image's index.

The form is that of BuildKit: a manifest for no platform, which names the image that it is about. So
every registry takes it, it is copied with the image, and the digest of the index is its digest too.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
STATEMENT: Final = "application/vnd.in-toto+json"
CYCLONEDX: Final = "https://cyclonedx.org/bom"
ABOUT: Final = "vnd.docker.reference.digest"
"""The annotation that names the image."""


@dataclass(frozen=True)
class Attached:
    """What an index and an archive get."""

    entry: dict[str, Any]
    """The entry of the index."""
    blobs: dict[str, bytes]
    """By digest."""


def attach(bill: bytes, digest: str) -> Attached:
    """Return a bill of materials, as CycloneDX, as a statement about the image with ``digest``."""
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
    return Attached({**add(manifest, MANIFEST), "annotations": about, "platform": nowhere}, blobs)
