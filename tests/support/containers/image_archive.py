"""Write small images as a build tool does."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

NAME = "docker.io/library/gopher-device-plugin:0.1.0"


def write_image(path: Path, architecture: str, content: bytes = b"x") -> str:
    """Write an OCI archive as buildah does, and return the digest of its image."""
    blobs = {}

    def blob(raw: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(raw).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = raw
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(raw)}

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        member = tarfile.TarInfo("opt/plugin/what")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    layer_entry = blob(layer.getvalue(), "application/vnd.oci.image.layer.v1.tar")
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [layer_entry],
    }
    entry = blob(json.dumps(manifest).encode(), str(manifest["mediaType"]))
    named = {**entry, "annotations": {"org.opencontainers.image.ref.name": NAME}}
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, raw in blobs.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return str(entry["digest"])
