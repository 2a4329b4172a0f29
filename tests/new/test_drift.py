"""``deviceplugin new`` and plugins/template are one plugin, and what both manifests say is one."""

import tomllib
from pathlib import Path

import pytest
import yaml

from deviceplugin_testing.tools.new._subject import PACKAGE, REPOSITORY, WORKSPACE, Subject, made
from manifests.kustomize import render

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "plugins/template"
VERSION = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["version"]
WORDS = {
    "name": "template",
    "class": "SerialPlugin",
    "resource": "example.com/serial",
    "driver": "serial.example.com",
    "version": VERSION,
    "framework": VERSION,
    "imports": "from deviceplugin_template import SerialPlugin\n"
    "from deviceplugin_testing.fixture import Kubelet",
    **dict.fromkeys(("entries", "hosting", "hosted"), ""),  # it only exists to be copied
    "nodes": "ttyUSB",
    "thing": "an_adapter",
    "summary": "Advertise USB serial adapters as example.com/serial.",
    "what": "",  # an example without docstrings has room on a page
    "how": "",
    "description": "A Kubernetes device plugin in 13 lines, to copy",
}
"""What makes the template of what `new` makes plugins from."""
NAMES = {Path("tests/test_template.py"): Path("tests/test_serial.py")}


def test_new_makes_the_template() -> None:
    found = {NAMES.get(path, path): text for path, text in made(PACKAGE, WORDS).items()}
    assert found == {path: (TEMPLATE / path).read_text() for path in found}


def test_nothing_of_the_template_is_left_out() -> None:
    there = {
        path.relative_to(TEMPLATE)
        for path in TEMPLATE.rglob("*")
        if path.is_file() and not {"__pycache__", ".pytest_cache"} & {*path.parts}
    }
    found = {NAMES.get(path, path) for path in made(PACKAGE, WORDS)}
    assert {Path("README.md")} == there - found


def test_a_subject_has_the_same_words_as_the_template() -> None:
    assert set(WORDS) == set(Subject("lamp", "example.com/lamp").words)


def test_every_file_that_the_wheel_brings_is_used() -> None:
    used = {f"{file}.in" for file in (*REPOSITORY.values(), *WORKSPACE.values())}
    folder = ROOT / "common/testing/src/deviceplugin_testing/tools/new/files"
    assert used == {path.name for path in folder.iterdir()}


def test_the_one_file_of_manifests_is_what_the_kustomization_renders(tmp_path: Path) -> None:
    subject = Subject("lamp", "example.com/lamp")
    (tmp_path / "deployments").mkdir()
    for name in ("base", "components"):
        (tmp_path / "deployments" / name).symlink_to(ROOT / "deployments" / name)
    place = tmp_path / "deployments/lamp"
    place.mkdir()
    for path, text in made(WORKSPACE, subject.words).items():
        if path.parent == Path("deployments/lamp"):
            (place / path.name).write_text(text)
    text = made(REPOSITORY, subject.words)[Path("deploy/lamp.yaml")]
    here = render(place)
    for (
        one
    ) in here:  # what is in a repository of its own is no part of ours, and has its own versions
        del one["metadata"]["labels"]["app.kubernetes.io/part-of"]
        del one["metadata"]["labels"]["app.kubernetes.io/version"]
        one["metadata"].pop("annotations", None)  # for a component of ours
    assert [*yaml.safe_load_all(text)] == here


@pytest.mark.parametrize("table", [REPOSITORY, WORKSPACE], ids=["own", "here"])
def test_the_longest_names_keep_lines_below_100_characters(table: dict[str, str]) -> None:
    subject = Subject("a" * 20, f"{'d' * 30}.example/{'r' * 9}")
    for path, text in made(table, subject.words).items():
        if path.suffix == ".py":
            assert 100 >= max(map(len, text.splitlines())), path
