"""Reading an image's archive; needs no image."""

import io
import re
import tarfile
from pathlib import Path

import pytest

from archive import Archive


def test_an_archive_in_the_form_of_an_old_docker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"[]"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is not an OCI archive; docker"):
        Archive(path)
