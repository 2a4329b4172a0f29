"""Images that tests make."""

import os
import sys
from pathlib import Path

import pytest

from archive import Archive
from containers import oci_image


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    config = {"Entrypoint": ["tool"]}
    oci_image.write(path, "a/b:1", config, {"bin/tool": b"text"}, {"bin/other": "/bin/tool"})
    archive = Archive(path)
    assert config == archive.config["config"]
    archive.extract(tmp_path / "root")
    tool = tmp_path / "root/bin/tool"
    assert (b"text", True) == (tool.read_bytes(), os.access(tool, os.X_OK))
    assert "/bin/tool" == str((tmp_path / "root/bin/other").readlink())


def test_a_busybox_with_libraries_is_none_for_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert None is oci_image.busybox()
    (tmp_path / "busybox").write_bytes(Path(sys.executable).resolve().read_bytes())
    (tmp_path / "busybox").chmod(0o755)
    assert None is oci_image.busybox()
