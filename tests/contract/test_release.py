"""A release is of one version, and whole."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import packages
import release
import versions
from containers.oci_image import write_plugin
from manifests import kustomize

ROOT = Path(__file__).parents[2]


def test_there_is_one_version_everywhere() -> None:
    assert {versions.current()} == {found for _, found in versions.everywhere()}
    folders = {place.split("/")[0] for place, _ in versions.everywhere()}
    assert {"build", "common", "demo", "deployments", "operator", "plugins"} == folders


def test_a_new_version_is_written_to_all_places(tmp_path: Path) -> None:
    for place in {place for place, _ in versions.everywhere()}:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    old = versions.current()
    before = [place for place, _ in versions.everywhere()]
    versions.write("12.3.4", tmp_path)
    assert [(place, "12.3.4") for place in before] == [*versions.everywhere(tmp_path)]
    text = (tmp_path / "common/node/pyproject.toml").read_text()
    assert (ROOT / "common/node/pyproject.toml").read_text() == text.replace("12.3.4", old)


@pytest.mark.slow
def test_a_release_has_packages_manifests_and_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")} - {"template"}
    folders = {"common/cli", "common/node", "common/testing", "operator"}
    assert folders | {f"plugins/{one}" for one in plugins} == {*packages.packages()}
    # Each is built alike but for two, which put into themselves what is beside them.
    some = {"deviceplugin_operator": "operator", "deviceplugin_node": "plugins/node"}
    some["deviceplugin_gopher"] = "plugins/gopher"
    monkeypatch.setattr(packages, "packages", lambda: [*some.values()])
    target = tmp_path / "release"
    monkeypatch.setattr(release, "TARGET", target)
    monkeypatch.setattr(release, "IMAGES", tmp_path)  # they take long
    monkeypatch.setattr(release, "render", lambda folder, *_: rendered(folder))
    release.dist()
    version, made = versions.current(), {path.name for path in target.iterdir()}
    built = [f"{name}-{version}" for name in some]
    assert {
        *(f"{one}{ending}" for one in built for ending in ("-py3-none-any.whl", ".tar.gz")),
        *(f"install-{name}.yaml" for name in (*plugins, "operator", "operator-crd")),
        *(f"device-plugins{of}-{version}.tgz" for of in ("", "-operator")),
        "SHA256SUMS",
    } == made
    for name in built:
        with zipfile.ZipFile(target / f"{name}-py3-none-any.whl") as wheel:
            of_wheel = wheel.read(f"{name}.dist-info/licenses/LICENSE")
            needed = wheel.read(f"{name}.dist-info/METADATA").decode()
        assert (name == built[1]) == (
            f"\nRequires-Dist: deviceplugin-gopher~={version}\n" in needed
        )
        with tarfile.open(target / f"{name}.tar.gz") as source:
            member = source.extractfile(f"{name}/LICENSE")
            assert member
            assert (ROOT / "LICENSE").read_bytes() == of_wheel == member.read()
    manifests = [*yaml.safe_load_all((target / "install-gopher.yaml").read_text())]
    assert "gopher-device-plugin" in {one["metadata"]["name"] for one in manifests}
    sums = dict(line.split("  ")[::-1] for line in (target / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        name: hashlib.sha256((target / name).read_bytes()).hexdigest()
        for name in made - {"SHA256SUMS"}
    }


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_checksums_are_signed_by_a_key_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "TARGET", tmp_path)
    key, sums = tmp_path / "key", tmp_path / "SHA256SUMS"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", str(key)]
    subprocess.run(make, check=True)
    sums.write_text(f"{'0' * 64}  install-gopher.yaml\n")
    release.sign(key)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "allowed_signers").write_text(f"releases@example.com {public}")
    page = (ROOT / "common/docs/releasing.md").read_text()
    (command,) = re.findall(r"^\$ (ssh-keygen -Y verify .+)$", page, re.MULTILINE)
    for text, is_good in ((sums.read_text(), True), ("1" + sums.read_text()[1:], False)):
        sums.write_text(text)
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=False)
        assert is_good == (done.returncode == 0), done
    (tmp_path / "other").write_text("no key")
    with pytest.raises(SystemExit, match=r"release\.py: .*/other: "):
        release.sign(tmp_path / "other")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
@pytest.mark.parametrize(
    ("name", "image", "components"),
    [
        ("gopher", "gopher-device-plugin", ["events"]),
        ("node", "node-device-plugin", []),
        ("operator", "deviceplugin-operator", []),
    ],
)
def test_manifests_name_the_images_of_the_registry_by_digest(
    name: str, image: str, components: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, registry = release.installs()[name], "registry.example.com/hw"
    places = [ROOT / "deployments/components" / one for one in components]
    path = tmp_path / f"{image}-{versions.current()}.tar"
    monkeypatch.setattr(release, "IMAGES", tmp_path)
    with pytest.raises(SystemExit) as failure:
        release.render(folder, registry, places)
    assert f"release.py: there is no {path}; run `make images` first" == str(failure.value)
    named = f"{registry}/{image}@{write_plugin(path, 'amd64')}"
    manifests = [*yaml.safe_load_all(release.render(folder, registry, places))]
    pods = [one for one in manifests if one["kind"] in {"DaemonSet", "Deployment"}]
    containers = [one["spec"]["template"]["spec"]["containers"] for one in pods]
    assert [[named] * (1 + len(components))] == [
        [container["image"] for container in each] for each in containers
    ]
    assert [["amd64"]] == [architectures(one) for one in pods]  # they keep off other nodes
    env = [entry for each in containers for one in each for entry in one.get("env", ())]
    prefixes = [one["value"] for one in env if one["name"] == "IMAGE_PREFIX"]
    assert prefixes == [f"{registry}/"] * (name == "operator")
    spaces = {one["metadata"].get("namespace", image) for one in manifests}
    assert {image} == spaces - {"default"}  # where the operator's Events are
    plain = [*yaml.safe_load_all(release.render(folder, "", places))]
    assert [(one["kind"], one["metadata"]) for one in plain] == [
        (one["kind"], one["metadata"]) for one in manifests
    ]


def architectures(manifest: Any) -> list[str]:
    affinity = manifest["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert ("kubernetes.io/arch", "In") == (expression["key"], expression["operator"])
    found: list[str] = expression["values"]
    return found


def test_the_chart_is_written_by_a_command(tmp_path: Path) -> None:
    place = tmp_path / "chart"
    release.main(["chart", str(place), "--home", "https://git.example.com/hw/plugins/"])
    page = (place / "README.md").read_text()
    at = f"https://git.example.com/hw/plugins/blob/v{versions.current()}"
    assert f"]({at}/common/docs/releasing.md)" in page
    assert "](.." not in page
    alerts = (place / "files/gopher.json").read_text()
    assert f'"runbook_url": "{at}/common/docs/runbooks.md#deviceunhealthy"' in alerts
    assert "home: https://git.example.com/hw/plugins\n" in (place / "Chart.yaml").read_text()
    with pytest.raises(SystemExit, match="chart exists already: remove it first"):
        release.main(["chart", str(place)])
    with pytest.raises(SystemExit, match=r"x cannot be written: .*Not a directory"):
        release.main(["chart", str(place / "README.md/x"), "--operator"])


def rendered(folder: Path) -> str:
    """Return what our own kustomize renders, which takes less time."""
    return "\n---\n".join(map(json.dumps, kustomize.render(folder)))


@pytest.mark.parametrize("folder", packages.packages())
def test_a_package_says_where_it_comes_from_and_what_it_fits(folder: str, tmp_path: Path) -> None:
    home = "https://git.example.com/hw/plugins"
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / folder / name, tmp_path)
    packages.give_home(tmp_path, folder, home, versions.current())
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert (
        f"{home}/blob/v{versions.current()}/{folder}/README.md" == project["urls"]["Documentation"]
    )
    ours = [need for need in project.get("dependencies", []) if need.startswith("deviceplugin")]
    assert (folder in {"common/node", "plugins/node"}) == (ours == [])  # the latter finds them
    assert [] == [need for need in ours if not need.endswith(f"~={versions.current()}")]
    page = (tmp_path / "README.md").read_text()
    links = {link for link in re.findall(r"\]\(([^)\s]+)\)", page) if not link.startswith("#")}
    assert {link for link in links if ":" not in link} == set()
    for link in links:
        if link.startswith(home):
            path = link.removeprefix(f"{home}/blob/v{versions.current()}/").partition("#")[0]
            assert (ROOT / path).exists(), link


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("#see-it", "#see-it"),
        ("https://kubernetes.io/docs", "https://kubernetes.io/docs"),
        ("docs/sharing.md", "https://h/plugins/gpu/docs/sharing.md"),
        ("../../common/docs/a.md#b", "https://h/common/docs/a.md#b"),
        ("../generic", "https://h/plugins/generic"),
    ],
)
def test_links_lead_to_the_repository(link: str, expected: str) -> None:
    made = packages.absolute_links(f"see [it]({link}), too", "plugins/gpu", "https://h")
    assert f"see [it]({expected}), too" == made


def test_workflows_use_verbs_and_files_that_there_are() -> None:
    verbs = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(verbs) <= 16
    for path in sorted(ROOT.glob(".github/workflows/*.yml")):
        text = path.read_text()
        jobs = yaml.safe_load(text)["jobs"]
        assert {need for job in jobs.values() for need in [job.get("needs")] if need} <= set(jobs)
        assert set(re.findall(r"\bmake ([a-z]+)", text)) <= verbs
        for file in re.findall(r"(?<=[ =])(?:tests|e2e|build)/[\w./-]+", text):
            assert (ROOT / file).exists()


def test_the_workflow_is_what_ci_runs_on_each_python_that_is_supported() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["ci"]["steps"]]
    project = tomllib.loads((ROOT / "common/node/pyproject.toml").read_text())["project"]
    named = {one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one}
    tried = jobs["ci"]["strategy"]["matrix"]["python"]
    assert named <= set(tried)
    assert project["requires-python"] == f">={tried[0]}"
    assert [f"3.{minor}" for minor in range(11, 15)] == tried


def test_a_release_is_built_for_each_platform_and_signed() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    built = [one["architecture"] for one in jobs["images"]["strategy"]["matrix"]["include"]]
    steps = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert f"--join {','.join(built)}" in steps
    assert "sigstore sign --bundle release/SHA256SUMS.sigstore.json release/SHA256SUMS" in steps
    assert "write" == jobs["publish-release"]["permissions"]["id-token"]
    base = (ROOT / "deployments/base/daemonset.yaml").read_text()
    assert f"values: [{', '.join(built)}]" in base


@pytest.mark.parametrize("path", sorted(ROOT.glob("build/*.lock")), ids=lambda path: path.name)
def test_a_lock_has_what_was_asked_for_with_hashes_and_names_no_index(path: Path) -> None:
    text = path.read_text()
    wanted = re.findall(r"^([a-z0-9-]+)", path.with_suffix(".in").read_text(), re.MULTILINE)
    locked = set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
    assert set(wanted) <= locked
    assert text.count("--hash=sha256:") >= len(locked)
    assert "://" not in text
    assert path.name in (ROOT / "Makefile").read_text()


def test_bots_know_files_that_there_are() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    places = {one["package-ecosystem"]: one["directory"] for one in updates}
    assert {"github-actions": "/", "docker": "/build", "devcontainers": "/"} == places
    assert (ROOT / "build/Dockerfile").exists()


def test_the_locks_are_made_without_rights_and_proposed_without_code_of_others() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/lock.yml").read_text())["jobs"]
    assert {"resolve", "propose"} == {*jobs}
    assert "permissions" not in jobs["resolve"]  # so they are those of the workflow: to read
    assert "github.token" not in str(jobs["resolve"])
    assert {"contents": "write", "pull-requests": "write"} == jobs["propose"]["permissions"]
    steps = jobs["propose"]["steps"]
    assert all(step.get("uses", "actions/").startswith("actions/") for step in steps)
    programs = r"(?m)^\s*(make|python3?|pip|uv|npm|curl|\S*/)"
    assert not any(re.search(programs, step.get("run", "")) for step in steps)


def test_only_wheels_of_a_week_and_older_are_locked() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "COOLDOWN ?= 7 days\n" in text
    assert '--only-binary :all: --exclude-newer "$(COOLDOWN)"' in text
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert [{"default-days": 7}] * len(updates) == [one["cooldown"] for one in updates]
    assert text.count("uv pip compile $(LOCK_OPTIONS)") == text.count("uv pip compile")


def test_what_is_locked_and_what_was_released_is_scanned_each_week_without_rights() -> None:
    text = (ROOT / ".github/workflows/scan.yml").read_text()
    found = yaml.safe_load(text)
    assert {"contents": "read"} == found["permissions"]
    assert {"locks", "images", "released"} == {*found["jobs"]}
    assert not any("permissions" in job for job in found["jobs"].values())
    assert found[True]["schedule"]  # YAML 1.1 takes the key `on` for a truth
    assert "for lock in requirements.lock build/*.lock" in text
    assert "pip-audit --strict " in text, "a package that nobody knows would pass"
    assert 2 == text.count('"sbom:$bill" --only-fixed --fail-on high || status=1')
    assert 3 == text.count("exit $status")


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
