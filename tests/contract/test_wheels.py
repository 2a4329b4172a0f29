"""The wheels that users install, not the sources beside them."""

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import fresh_environment
from containers import image_commands
from containers.image_tree import small_node
from deviceplugin.__main__ import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "common/node": "deviceplugin",
    "common/testing": "deviceplugin_testing",
    "common/cli": "deviceplugin_cli",
    "operator": "deviceplugin_operator",
    **{
        f"plugins/{path.parent.name}": f"deviceplugin_{path.parent.name}"
        for path in sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    },
}


pytestmark = pytest.mark.slow  # they are built first
SOURCES = (".proto", ".pyi")
DISTRIBUTIONS = ("deviceplugin", "deviceplugin-testing", "deviceplugin-cli")
Shell = Callable[..., tuple[int, str]]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build all wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    made = fresh_environment.wheels(folder, *(ROOT / package for package in PACKAGES))
    return dict(zip(PACKAGES.values(), made, strict=True))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_a_wheel_has_the_package_with_its_types_and_nothing_else(wheels: dict[str, Path]) -> None:
    for name, wheel in wheels.items():
        found = names(wheel)
        assert f"{name}/py.typed" in found
        assert {name} == {entry.partition("/")[0].split("-")[0] for entry in found}
        assert [] == [entry for entry in found if "test_" in entry or entry.endswith(".pyc")]


def test_the_framework_brings_every_file_that_stands_beside_its_code(
    wheels: dict[str, Path],
) -> None:
    source = ROOT / "common/node/src"
    files = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith(SOURCES)
    }
    found = names(wheels["deviceplugin"])
    assert set() == files - found
    assert [] == [name for name in found if name.endswith(SOURCES)]


@pytest.fixture
def shell(tmp_path: Path, wheels: dict[str, Path]) -> Shell:
    """Return what runs a command in a new environment, in which our wheels are files."""
    environment = fresh_environment.make(tmp_path / "venv", *DISTRIBUTIONS)
    folder = next(iter(wheels.values())).parent

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env={**environment, "PIP_FIND_LINKS": str(folder), "PIP_QUIET": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_each_command_runs_once_its_package_is_installed(shell: Shell, tmp_path: Path) -> None:
    node = str(small_node(tmp_path / "node"))
    for installed in (DISTRIBUTIONS[:1], DISTRIBUTIONS):
        assert (0, "") == shell("pip", "install", *installed)
        _, text = shell("deviceplugin", "--help")
        _, report = shell("python", image_commands.__file__, node, "deviceplugin")
        found = {words: tuple(answer) for words, answer in json.loads(report)["commands"].items()}
        for name, command in COMMANDS.items():
            there = command.package in installed
            assert there == (f"\n  {name} " in text), name
            missing = f"deviceplugin: {name} is not installed: pip install {command.package}\n"
            assert ((0, "") if there else (2, missing)) == found[f"deviceplugin {name}"]


def test_an_authors_test_passes_and_a_plugin_runs(shell: Shell, tmp_path: Path) -> None:
    packages = ("deviceplugin-testing", "deviceplugin-template", "deviceplugin-gopher")
    assert (0, "") == shell("pip", "install", *packages)
    shutil.copy(ROOT / "plugins/template/tests/test_serial.py", tmp_path)
    assert 0 == shell("pytest", "-p", "no:cacheprovider", "test_serial.py")[0]
    (tmp_path / "gus").touch()
    status, output = shell("gopher-device-plugin", "--once", "--directory", str(tmp_path))
    assert 0 == status
    assert "example.com/gopher gus healthy" in " ".join(output.split())
