"""A release is of one version, and whole."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import release

ROOT = Path(__file__).parents[2]


def test_there_is_one_version_everywhere() -> None:
    assert {release.version()} == {found for _, found in release.versions()}
    folders = {place.split("/")[0] for place, _ in release.versions()}
    assert {"build", "common", "demo", "deployments", "operator", "plugins"} == folders


def test_a_new_version_is_written_to_all_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in {place for place, _ in release.versions()}:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    old = release.version()
    before = [place for place, _ in release.versions()]
    monkeypatch.setattr(release, "ROOT", tmp_path)
    release.set_version("12.3.4")
    assert [(place, "12.3.4") for place in before] == [*release.versions()]
    text = (tmp_path / "common/pyproject.toml").read_text()
    assert (ROOT / "common/pyproject.toml").read_text() == text.replace("12.3.4", old)


@pytest.mark.timeout(120)  # sixteen builds
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
def test_a_release_has_packages_manifests_and_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "TARGET", tmp_path / "release")
    monkeypatch.setattr(release, "IMAGES", tmp_path)  # they take long
    release.dist()
    made = {path.name for path in (tmp_path / "release").iterdir()}
    version = release.version()
    plugins = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")}
    packages = {
        "deviceplugin",
        "deviceplugin_operator",
        *(f"deviceplugin_{plugin}" for plugin in plugins),
    }
    assert {f"{name}-{version}-py3-none-any.whl" for name in packages} <= made
    assert {f"{name}-{version}.tar.gz" for name in packages} <= made
    manifests = [*yaml.safe_load_all((tmp_path / "release/install-gopher.yaml").read_text())]
    assert "Namespace" == manifests[0]["kind"]
    for line in (tmp_path / "release/SHA256SUMS").read_text().splitlines():
        total, name = re.split(r"  ", line)
        file = tmp_path / "release" / name
        assert total == hashlib.sha256(file.read_bytes()).hexdigest()
        made.remove(name)
    assert {"SHA256SUMS"} == made


def test_the_command_says_the_version() -> None:
    words = [sys.executable, str(ROOT / "build/release.py"), "version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert f"{release.version()}\n" == done.stdout


def test_workflows_use_verbs_and_files_that_there_are() -> None:
    verbs = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(verbs) <= 12
    for path in sorted(ROOT.glob(".github/workflows/*.yml")):
        text = path.read_text()
        jobs = yaml.safe_load(text)["jobs"]
        assert {need for job in jobs.values() for need in [job.get("needs")] if need} <= set(jobs)
        assert set(re.findall(r"\bmake ([a-z]+)", text)) <= verbs
        for file in re.findall(r"(?<=[ =])(?:tests|e2e|build)/[\w./-]+", text):
            assert (ROOT / file).exists()


def test_workflows_take_actions_by_commit_and_no_more_time_than_said() -> None:
    for path in sorted(ROOT.glob(".github/workflows/*.yml")):
        for action in re.findall(r"uses: (.+)", path.read_text()):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action), (
                f"{path.name}: {action}"
            )
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            assert job["timeout-minutes"] <= 45, f"{path.name}: {name}"
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"] == {"persist-credentials": False}
                # What comes from outside is a variable there, and no part of a script.
                assert "${{" not in step.get("run", ""), f"{path.name}: {step}"
