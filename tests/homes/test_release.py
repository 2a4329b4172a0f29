"""A release is installed from where it is published: what of it needs no cluster."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rehearsal
import release
import versions
from cluster.kinds import NAMESPACE, POD
from cluster.small_cluster import PLUGINS, SHELL, running, why_not
from homes.cluster.installed_release import Manifests
from homes.cluster.kubectl import Kubectl
from homes.cluster.release import Release
from manifests.kustomize import render

needs_kubectl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
VERSION = versions.current()


def write_release(folder: Path, version: str = VERSION) -> Path:
    """Write a release with the gopher plugin, whose images nodes have."""
    folder.mkdir()
    text = yaml.safe_dump_all(render(release.ROOT / "deployments/gopher"))
    text = re.sub(rf"\b{re.escape(VERSION)}\b", version, text)
    files = {"install-gopher.yaml": text, f"device-plugins-{version}.tgz": "no chart"}
    sums = ""
    for name, content in files.items():
        (folder / name).write_text(content)
        sums += f"{hashlib.sha256(content.encode()).hexdigest()}  {name}\n"
    (folder / "SHA256SUMS").write_text(sums)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_release(tmp_path / "release")


def test_a_release_is_read_from_a_folder_and_by_http(folder: Path) -> None:
    content = (folder / "install-gopher.yaml").read_bytes()
    with rehearsal.served(folder.parent, "127.0.0.1", 0) as address:
        served = Release(f"{address}/release/")
        for one in (Release(str(folder)), served):
            assert VERSION == one.version
            assert content == one.read("install-gopher.yaml")
        assert f"{address}/release/{served.chart}" == served.address(served.chart)
    assert str(folder / "install-gopher.yaml") == Release(str(folder)).address(
        "install-gopher.yaml"
    )
    with pytest.raises(OSError, match="refused"):
        Release(f"{address}/release")


def test_a_file_that_is_not_as_the_checksums_say_is_refused(folder: Path) -> None:
    made = Release(str(folder))
    (folder / "install-gopher.yaml").write_text("kind: ClusterRoleBinding")
    with pytest.raises(AssertionError, match=r"install-gopher\.yaml is another file"):
        made.read("install-gopher.yaml")
    with pytest.raises(AssertionError, match=r"install-gopher\.yaml is another file"):
        Manifests("gopher", folder, Kubectl("x", 1)).install(made, {})  # and is not applied
    (folder / "SHA256SUMS").write_text("")
    with pytest.raises(AssertionError, match="has no chart"):
        Release(str(folder))


@needs_kubectl
@pytest.mark.slow  # a pytest of its own
def test_a_release_is_installed_upgraded_and_uninstalled_on_a_stand_in(
    folder: Path, tmp_path: Path
) -> None:
    following = rehearsal.following(VERSION)
    name = "gopher-device-plugin"
    images = {**SHELL, f"{name}:{VERSION}": PLUGINS[f"{name}:{VERSION}"]}
    images[f"{name}:{following}"] = images[f"{name}:{VERSION}"]
    after = write_release(tmp_path / "next", following)
    with running(images) as cluster:
        words = ["-m", "gopher", "-k", "manifests", f"--release={folder}"]
        suite = [sys.executable, "-m", "pytest", "e2e/test_release.py", "-n", "0", "-q", "-rs"]
        options = ["-p", "no:cacheprovider", "--cluster", f"--next-release={after}", "--tb=short"]
        done = subprocess.run(
            [*suite, *options, *words],
            cwd=release.ROOT,
            env={"PATH": os.environ["PATH"], **cluster.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "1 passed" in done.stdout, done.stdout
        assert ["default", "kube-system"] == cluster.there(NAMESPACE)
        assert [] == cluster.there(POD)
