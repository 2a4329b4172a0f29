"""Read an image from an OCI archive: its configuration, sizes and root file system."""

import gzip
import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ABOUT: Final = "vnd.docker.reference.digest"
"""The annotation of a bill of materials that names the image."""
FOLDERS: Final = ("opt/plugin/", "opt/operator/")
"""The folders that hold the program of an image and its packages; an image has one of them."""
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True)
class Sizes:
    """The sizes of an image, in bytes; ``plugin`` and ``parts`` are of its program."""

    plugin: int
    plugin_compressed: int
    whole: int
    whole_compressed: int
    parts: dict[str, int]
    """The parts of the plugin by the name of a folder or module, the largest first."""


class Archive:
    """The only image in an archive; of one for several platforms, the first.

    Bills of materials that are attached to it are not counted, and not extracted. Raises ValueError
    if it is not an OCI archive of one image.
    """

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as archive:
            files = [member for member in archive if member.isfile()]
            self.files = {one.name: _read(archive, one) for one in files}
        if "index.json" not in self.files:
            raise ValueError(f"{path} is not an OCI archive; docker writes one from version 25 on")
        (self.entry,) = self._json("index.json")["manifests"]
        self.digest: str = self.entry["digest"]
        """The digest of the manifest, by which a registry knows the image if pushed unchanged."""
        listed = self._blob(self.digest).get("manifests")
        self.is_joined = listed is not None
        """Whether it was joined, of archives for one platform each."""
        entries = [one for one in listed or [self.entry] if ABOUT not in one.get("annotations", {})]
        digests = [one["digest"] for one in entries]
        self.manifest = self._blob(digests[0])
        self.config = self._blob(self.manifest["config"]["digest"])
        self.architectures = [self._architecture(digest) for digest in digests]
        """What the image is for, as Kubernetes calls it: amd64, arm64."""

    def layers(self) -> Iterator[tuple[int, bytes]]:
        """Yield each layer: its compressed size, and its tar file."""
        for layer in self.manifest["layers"]:
            raw = self.files[blob_path(layer["digest"])]
            plain = gzip.decompress(raw) if raw.startswith(_GZIP) else raw
            yield len(gzip.compress(plain)) if plain is raw else len(raw), plain

    def sizes(self) -> Sizes:
        """Return the sizes. A layer counts as the plugin's if it holds nothing else."""
        plugin_compressed = whole_compressed = whole = 0
        parts: Counter[str] = Counter()
        for compressed, plain in self.layers():
            whole_compressed += compressed
            own: Counter[str] = Counter()
            other = 0
            for member in _files(plain):
                name = member.name.removeprefix("./")
                if name.startswith(FOLDERS):
                    own[_part(name.split("/", 2)[2])] += member.size
                else:
                    other += member.size
            whole += other + own.total()
            parts += own
            plugin_compressed += compressed if own and not other else 0
        by_size = dict(parts.most_common())
        return Sizes(parts.total(), plugin_compressed, whole, whole_compressed, by_size)

    def extract(self, root: Path) -> None:
        """Unpack the root file system, with owners if the caller may set them."""
        for _, plain in self.layers():
            with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
                for member in layer:
                    if Path(member.name).name.startswith(".wh."):
                        raise ValueError(f"{member.name}: a file of an earlier layer is removed")
                layer.extractall(root, filter="tar")

    def _architecture(self, digest: str) -> str:
        found: str = self._blob(self._blob(digest)["config"]["digest"])["architecture"]
        return found

    def _json(self, name: str) -> Any:
        return json.loads(self.files[name])

    def _blob(self, digest: str) -> Any:
        return self._json(blob_path(digest))


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def blob_path(digest: str) -> str:
    """Return where an archive has a blob."""
    return "blobs/" + digest.replace(":", "/")


def _files(plain: bytes) -> Iterator[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
        yield from (member for member in layer if member.isfile())


def _part(name: str) -> str:
    """Return the part that a file belongs to. Byte code and metadata belong to their packages."""
    first, _, rest = name.partition("/")
    if first == "__pycache__":
        first = rest.partition(".")[0]
    first = first.partition("-")[0].removesuffix(".py")
    return _SAME.get(first, first)


_SAME: Final = {"grpcio": "grpc", "protobuf": "google", "PyYAML": "yaml", "pyyaml": "yaml"}
