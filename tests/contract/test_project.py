"""What the repository says to those who want to report something, or to join."""

import json
import re
import subprocess
from pathlib import Path

import yaml

import pages

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def test_forms_ask_for_what_is_needed_and_name_commands_that_there_are() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in FORMS}
    assert {"bug", "hardware"} == set(forms)
    for form in forms.values():
        assert {"name", "description", "labels", "body"} == set(form)
        ids = [field["id"] for field in form["body"]]
        assert len(set(ids)) == len(ids)
        for field in form["body"]:
            assert field["type"] in {"textarea", "input", "dropdown"}
            assert field["attributes"]["label"]
    required = {one["id"] for one in forms["bug"]["body"] if one.get("validations")}
    assert {"what", "doctor", "log", "versions"} == required
    assert "deviceplugin doctor --output json" in str(forms["bug"])


def test_forms_and_templates_name_files_that_there_are() -> None:
    texts = [*FORMS, ROOT / ".github/pull_request_template.md"]
    for path in texts:
        for file in re.findall(r"(?:common|build)/[\w./-]+\w", path.read_text()):
            assert (ROOT / file).exists(), f"{path.name}: {file}"


def test_a_dev_container_has_what_the_project_needs() -> None:
    found = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    python = re.search(r"python:3\.(\d+)", found["image"])
    assert oldest
    assert python
    assert int(python[1]) >= int(oldest[1])
    assert "make setup" == found["postCreateCommand"]
    assert (
        ".venv/bin/python"
        == found["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    )


def test_every_border_of_the_threat_model_is_attacked_by_tests_that_there_are() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert [] == pages.claims_without_a_test(page, "## Threat model", ROOT)


def test_nothing_says_to_install_from_the_index_what_anybody_could_register_there() -> None:
    """Our packages are not published: they are installed by their paths."""
    words = [
        "git",
        "-C",
        str(ROOT),
        "grep",
        "-hE",
        "pip (install|download) ",
        "--",
        ".",
        ":!CHANGELOG.md",
    ]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) > 10
    ours = re.compile(r"(?<![\w/.-])deviceplugin[\w-]*")
    said = [line.partition("pip ")[2].partition("`")[0] for line in lines]
    assert [] == [text for text in said if ours.search(text)]
