"""What the Dockerfile takes from the repository is there."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest

import images
import locked
import versions
from images import in_full
from trim import trim

ROOT = Path(__file__).parents[2]
FILES = ("build/Dockerfile", "build/operator.Dockerfile")
DOCKERFILE, OPERATORS = ((ROOT / one).read_text() for one in FILES)
each = pytest.mark.parametrize("dockerfile", [DOCKERFILE, OPERATORS], ids=["plugin", "operator"])
LOCK = (ROOT / "requirements.lock").read_text()
PLUGINS = sorted({path.parent.name for path in ROOT.glob("deployments/*/kustom*.yaml")} - {"base"})


@each
def test_what_is_copied_exists_and_is_in_the_context_of_a_build(dockerfile: str) -> None:
    (name,) = (one for one in FILES if (ROOT / one).read_text() == dockerfile)
    allowed = re.findall(r"^!(.+)$", (ROOT / f"{name}.dockerignore").read_text(), re.MULTILINE)
    for words in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        sources = words.split()[:-1]
        assert {*sources} <= {*allowed}
        assert all((ROOT / one.replace("${PLUGIN}", "gopher")).exists() for one in sources)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_that_is_deployed_has_the_command_that_its_image_starts(plugin: str) -> None:
    project = tomllib.loads((ROOT / "plugins" / plugin / "pyproject.toml").read_text())
    assert f"{plugin}-device-plugin" in project["project"]["scripts"]


@each
def test_the_image_starts_python_itself_so_that_signals_reach_it(dockerfile: str) -> None:
    (words,) = re.findall(r"^ENTRYPOINT (.+)$", dockerfile, re.MULTILINE)
    assert "python3" == json.loads(words)[0]


@each
def test_images_have_all_plugins_where_the_package_of_all_is(dockerfile: str) -> None:
    (command,) = re.findall(r"grep -l '(\S+)' (plugins\S+)", dockerfile)
    named = {path.parent.name for path in ROOT.glob(command[1]) if command[0] in path.read_text()}
    assert named == {entry.name for entry in entry_points(group="deviceplugin.plugins")}


def test_the_operator_is_built_with_the_plugins_unless_others_are_named() -> None:
    made = images.image(images.OPERATOR)
    assert ("deviceplugin-operator", {}) == (made.title, made.arguments)
    assert (ROOT / made.dockerfile).read_text() == OPERATORS
    assert (ROOT / f"{made.dockerfile}.dockerignore").is_file()
    assert versions.of(made.project) == versions.of(images.image("gopher").project)


@each
def test_what_wheels_are_built_with_is_in_the_lock(dockerfile: str) -> None:
    (words,) = re.findall(r"locked\.py only (.+?) \\\n", dockerfile)
    found = locked.main(["only", *words.split()], LOCK)
    assert words.split() == re.findall(r"^(\S+)==", found, re.MULTILINE)
    assert len(words.split()) <= found.count("--hash=sha256:")


def test_what_pip_needs_is_taken_from_the_lock_by_whatever_spelling(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    install = [
        {"is_direct": True, "metadata": {"name": "deviceplugin"}},
        {"is_direct": False, "metadata": {"name": "Typing_Extensions"}},
    ]
    report.write_text(json.dumps({"install": install}))
    found = locked.main(["needed", str(report)], LOCK)
    assert found.startswith("typing-extensions==")
    assert 1 == found.count("==")


def test_pins_have_no_hashes_and_keep_their_conditions() -> None:
    lock = "a-b==1.0 \\\n    --hash=sha256:00\nc==2 ; sys_platform == 'win32' \\\n    --hash=x\n"
    words = [sys.executable, str(ROOT / "build/locked.py"), "pins"]
    done = subprocess.run(words, input=lock, capture_output=True, text=True, check=True)
    assert "a-b==1.0\nc==2 ; sys_platform == 'win32'\n" == done.stdout


def test_a_package_that_is_not_locked_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"^locked\.py: not in the lock: left-pad$"):
        locked.main(["only", "left-pad"], LOCK)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("gopher-device-plugin:1", "docker.io/library/gopher-device-plugin:1"),
        ("someone/gopher-device-plugin:1", "docker.io/someone/gopher-device-plugin:1"),
        ("registry.example.com/gopher:1", "registry.example.com/gopher:1"),
        ("host:5000/gopher:1", "host:5000/gopher:1"),
        ("localhost/gopher:1", "localhost/gopher:1"),
    ],
)
def test_an_archive_has_the_name_under_which_a_node_looks_for_its_image(
    name: str, full: str
) -> None:
    assert full == in_full(name)


@each
def test_the_image_that_is_built_in_has_a_digest_in_a_line_that_a_bot_updates(
    dockerfile: str,
) -> None:
    lines = re.findall(r"^FROM (?!\$)(.+)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64} AS pinned", "\n".join(lines))
    assert lines == re.findall(r"^FROM (?!\$)(.+)$", DOCKERFILE, re.MULTILINE), "both the same"
    assert "ARG BUILD_IMAGE=pinned\n" in dockerfile


@pytest.mark.parametrize(
    ("words", "expected"), [([], r"python:\S+@sha256:[0-9a-f]{64}"), (["--build-image", "a"], "a")]
)
def test_images_are_built_in_the_one_with_the_digest_and_a_failure_is_told_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    expected: str,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\necho "$@" >"$0.words"\nexit 1\n')
    tool.chmod(0o755)
    monkeypatch.setattr(images, "TARGET", tmp_path / "images")
    monkeypatch.setenv("IMAGE_TOOL", str(tool))
    assert 1 == images.main(["gopher", *words])
    said = tool.with_suffix(".words").read_text()
    assert re.search(rf"--build-arg BUILD_IMAGE={expected} ", said)
    (line,) = capfd.readouterr().err.splitlines()
    assert f"plugin:0.1.0: {tool} ended with status 1; its output is above" in line


@each
def test_the_packages_of_an_image_have_the_licence(dockerfile: str, tmp_path: Path) -> None:
    (loop,) = re.findall(
        r"for package in .+?; do \\\n(.+?)done$", dockerfile, re.DOTALL | re.MULTILINE
    )
    shutil.copytree(ROOT / "plugins/gopher", tmp_path / "gopher")
    shutil.copy(ROOT / "LICENSE", tmp_path)
    (tmp_path / "wheels").mkdir()
    loop = f"set -e; package=gopher\n{loop}".replace("\\\n", "\n").replace("/wheels", str(tmp_path))
    loop = loop.replace("python3", sys.executable)
    subprocess.run(["sh", "-c", loop], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as packed:
        (text,) = (packed.read(one) for one in packed.namelist() if one.endswith("/LICENSE"))
    assert (ROOT / "LICENSE").read_bytes() == text


def test_commands_of_an_image_start_by_its_own_python_and_are_found_by_their_names(
    tmp_path: Path,
) -> None:
    (lines,) = re.findall(r"cd /opt/plugin/bin \\\n && (.+?) \\\n && cd ", DOCKERFILE, re.DOTALL)
    (link,) = re.findall(r'"(import os, sys; .+?)"\]', DOCKERFILE)
    kept = ["deviceplugin", "gopher-device-plugin"]
    for name in [*kept, "normalizer"]:
        (tmp_path / name).write_text(f"#!/nowhere/python3\nprint({name!r})\n")
        (tmp_path / name).chmod(0o755)
    script = lines.replace("\\\n", "")
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env={"PLUGIN": "gopher"}, check=True)
    assert sorted([*kept, "device-plugin"]) == sorted(path.name for path in tmp_path.iterdir())
    assert "gopher-device-plugin" == str((tmp_path / "device-plugin").readlink())
    link = link.replace("/link", str(tmp_path / "link"))
    subprocess.run([sys.executable, "-c", link], check=True)
    for name in kept:
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/plugin/bin/", f"{tmp_path}/link/"))
        done = subprocess.run([tmp_path / name], capture_output=True, text=True, check=True)
        assert f"{name}\n" == done.stdout
    assert "COPY --from=linked /link /opt/plugin/bin\n" in DOCKERFILE
    assert re.search(r"^ENV PATH=\S+:/opt/plugin/bin ", DOCKERFILE, re.MULTILINE)


def test_a_tool_that_does_not_work_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("IMAGE_TOOL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, script in {"podman": "echo no daemon >&2; exit 1", "docker": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    assert 1 == images.main(["gopher"])
    assert [
        "podman is left out: no daemon",
        "docker is left out: it does not work",
        "images.py: none of buildah, podman, docker, nerdctl is installed and works",
    ] == capfd.readouterr().err.splitlines()
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    assert "docker" == images.tool()
    assert "unknown" == images.revision(), "there is no git"


def test_of_our_own_packages_nothing_is_trimmed(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "deviceplugin_x/a.proto", tmp_path / "grpc/a.proto"
    for path in (ours, theirs):
        path.parent.mkdir()
        path.touch()
    trim(tmp_path)
    assert (True, False) == (ours.exists(), theirs.exists())
