"""A release is pushed as it was built, and a rehearsal publishes two of them on this machine."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.request import urlopen

import pytest

import push
import rehearsal
import versions
from archive import Archive
from containers.oci_image import write_plugin
from deviceplugin_testing.conformance._subject import free_port
from join import join

CHART = "device-plugins-operator"
REGISTRY = next(filter(shutil.which, rehearsal.REGISTRIES), None)
needs_registry = pytest.mark.skipif(
    REGISTRY is None or shutil.which("skopeo") is None, reason="no docker-registry, or no skopeo"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a release with an image for two platforms."""
    made = tmp_path / "release"
    made.mkdir()
    parts = [tmp_path / f"{one}.tar" for one in ("amd64", "arm64")]
    for part in parts:
        write_plugin(part, part.stem, part.stem.encode())
        bill = {"metadata": {"component": {"name": "gopher-device-plugin"}}}
        part.with_suffix(".cdx.json").write_text(json.dumps(bill))
    join(parts, made / "gopher-device-plugin-0.1.0.tar")
    (made / "SHA256SUMS").touch()
    return made


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


def write_chart(folder: Path) -> None:
    """Write the least that helm takes for the chart."""
    (folder / "Chart.yaml").write_text(f"apiVersion: v2\nname: {CHART}\nversion: 0.1.0\n")
    with tarfile.open(folder / f"{CHART}-0.1.0.tgz", "w:gz") as archive:
        archive.add(folder / "Chart.yaml", f"{CHART}/Chart.yaml")


def test_a_release_has_images_and_a_chart_to_push(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_chart(folder)
    assert 0 == push.main(["--names", str(folder)])
    assert ["gopher-device-plugin", CHART] == json.loads(capsys.readouterr().out)
    assert 1 == push.main(["registry.example.com", str(folder), "--only", "gpu-device-plugin"])
    said = f"push.py: {folder} has no gpu-device-plugin: it has gopher-device-plugin, {CHART}"
    assert f"{said}\n" == capsys.readouterr().err


@needs_registry
def test_a_registry_has_an_image_by_the_digest_of_the_release(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with rehearsal.running_registry(address):
        words = [f"{address}/hw/", str(folder), "--plain-http"]
        assert 0 == push.main(words)
        name = f"{address}/hw/gopher-device-plugin"
        digest = Archive(folder / "gopher-device-plugin-0.1.0.tar").digest
        assert f"{name}@{digest}\n" == capsys.readouterr().out
        for known in (f"{name}@{digest}", f"{name}:0.1.0"):
            inspect = ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{known}"]
            done = subprocess.run(inspect, capture_output=True, text=True, check=True)
            found = [
                one["platform"]["architecture"] for one in json.loads(done.stdout)["manifests"]
            ]
            assert ["amd64", "arm64", "unknown", "unknown"] == found  # with bills of materials
        assert 0 == push.main(words)  # as a job of a workflow that is run again
        assert 1 == push.main([*words[:2], "--only", "gopher-device-plugin"])  # there is no TLS
        assert "push.py: skopeo copy: " in capsys.readouterr().err
    assert 1 == push.main(words)
    assert "connection refused" in capsys.readouterr().err


@needs_registry
@pytest.mark.skipif(shutil.which("helm") is None, reason="no helm")
def test_a_registry_has_the_chart(
    folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_chart(folder)
    with rehearsal.running_registry(address):
        assert 0 == push.main([f"{address}/hw", str(folder), "--plain-http", "--only", CHART])
        name, _, digest = capsys.readouterr().out.strip().partition("@")
        assert f"{address}/hw/charts/{CHART}" == name
        assert digest.startswith("sha256:")
        pull = ["helm", "pull", f"oci://{name}", "--plain-http", "--destination", str(tmp_path)]
        subprocess.run(pull, check=True, capture_output=True)
    packed = f"{CHART}-0.1.0.tgz"
    assert (folder / packed).read_bytes() == (tmp_path / packed).read_bytes()


def test_an_image_that_has_another_digest_in_the_registry_is_an_error(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tool = tmp_path / "bin/skopeo"
    tool.parent.mkdir()
    answer = 'for one; do case $one in --digestfile=*) echo sha256:0 > "${one#*=}";; esac; done'
    tool.write_text(f"#!/bin/sh\n{answer}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert 1 == push.main(["registry.example.com/hw", str(folder)])
    said = capsys.readouterr().err
    assert "gopher-device-plugin: the registry has sha256:0, the release sha256:" in said


@needs_registry
def test_a_registry_that_another_process_serves_already_is_not_used(address: str) -> None:
    with rehearsal.running_registry(address):
        with pytest.raises(SystemExit, match=f"{address}: Address already in use"):
            rehearsal.running_registry(address).__enter__()
        urlopen(f"http://{address}/v2/", timeout=30).close()


def test_a_rehearsal_without_a_registry_says_where_to_have_one(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install docker-registry"):
        rehearsal.running_registry(address).__enter__()


@pytest.mark.slow  # it copies the checkout
def test_a_rehearsal_upgrades_to_the_same_files_of_the_following_version(tmp_path: Path) -> None:
    assert "0.1.10" == rehearsal.following("0.1.9")
    rehearsal.copy(tmp_path / "next")
    words = [sys.executable, str(tmp_path / "next/build/release.py"), "version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert f"{rehearsal.following(versions.current())}\n" == done.stdout
    assert not (tmp_path / "next/.venv").exists()
    assert (tmp_path / "next/build/rehearsal.py").exists()
